package rpcotel_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/rds/rpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver stands for a collector: it keeps the spans that come by OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
	bad   []string // what was wrong with requests
}

func newReceiver() *receiver {
	c := &receiver{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		var request collector.ExportTraceServiceRequest
		b, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(b, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			c.bad = append(c.bad, fmt.Sprint(r.URL, r.Header, err))
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, of := range request.ResourceSpans {
			for _, in := range of.ScopeSpans {
				if !strings.HasSuffix(in.Scope.GetName(), "/contrib/rpcotel") {
					c.bad = append(c.bad, in.Scope.GetName())
				}
				c.spans = append(c.spans, in.Spans...)
			}
		}
	}))
	return c
}

// TestOTLP: spans of all outcomes go to a collector by OTLP, linked, with methods and errors that
// are no text, which would cost all spans that are sent with them.
func TestOTLP(t *testing.T) {
	c := newReceiver()
	defer c.Close()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(c.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	batch := sdk.NewBatchSpanProcessor(exporter)
	p := newPair(t, methods, sdk.WithSpanProcessor(batch), sdk.WithResource(resource.Empty()))
	for _, method := range []string{"echo", "fail", "panic", "by\xfftes", "no\xffne"} {
		_, _ = p.caller.Call(soon(t), p.at, method, nil)
	}
	p.stop()
	if err := batch.Shutdown(soon(t)); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.bad) > 0 {
		t.Errorf("what came is wrong: %q", c.bad)
	}
	clients := map[string]*otlp.Span{}
	for _, s := range c.spans {
		if s.Kind == otlp.Span_SPAN_KIND_CLIENT {
			clients[hex.EncodeToString(s.SpanId)] = s
		}
	}
	servers := map[string]*otlp.Span{}
	for _, s := range c.spans {
		if s.Kind != otlp.Span_SPAN_KIND_SERVER {
			continue
		}
		servers[s.Name] = s
		parent := clients[hex.EncodeToString(s.ParentSpanId)]
		if parent == nil || parent.Name != s.Name || string(parent.TraceId) != string(s.TraceId) || parent.StartTimeUnixNano > s.StartTimeUnixNano {
			t.Errorf("the parent of %s: %v", s.Name, parent)
		}
	}
	if len(clients) != 5 || len(servers) != 4 || servers["by\uFFFDtes"] == nil {
		t.Errorf("%d of callers, %d of servers: %v", len(clients), len(servers), c.spans)
	}
	if s := servers["panic"].GetStatus(); s.GetCode() != otlp.Status_STATUS_CODE_ERROR || servers["echo"].GetStatus().GetCode() != otlp.Status_STATUS_CODE_UNSET {
		t.Errorf("status of a panic: %v", s)
	}
	events := map[string]bool{}
	for _, e := range servers["panic"].GetEvents() {
		events[e.Name] = true
	}
	if !events["exception"] || !events["handler begins"] {
		t.Errorf("events of a panic: %v", events)
	}
}

// TestNoCollector: a collector that is not there costs spans, and calls nothing.
func TestNoCollector(t *testing.T) {
	c := newReceiver()
	c.Close()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(c.URL), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	batch := sdk.NewBatchSpanProcessor(exporter, sdk.WithMaxQueueSize(1), sdk.WithMaxExportBatchSize(1))
	p := newPair(t, methods, sdk.WithSpanProcessor(batch))
	for range 100 {
		if _, err := p.caller.Do(soon(t), &rpc.Request{To: p.at, Method: "echo"}); err != nil {
			t.Fatal(err)
		}
	}
	_ = batch.Shutdown(context.Background()) // it has nobody to send to
}
