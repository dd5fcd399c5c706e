package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/lists"
)

// MaxPingSize is the largest payload of a ping in bytes.
const MaxPingSize = 64 << 10

// Ping timeouts.
const (
	DefaultPingTimeout = 2 * time.Second
	MaxPingTimeout     = time.Minute
)

// Backend is the daemon behind the service. Several goroutines may call the methods.
// Methods may block until ctx ends.
type Backend interface {
	Status() (Status, error)
	Devices() (Devices, error)
	Sockets() ([]SocketInfo, error)
	// Unreceived lists the connections of processes that have not received descriptors, in
	// no order.
	Unreceived() []Unreceived
	Peers() ([]PeerInfo, error)
	// PeerReset breaks every connection to addr in a lane and path, from any local address,
	// and returns how many it broke. A nil lane is all lanes, a nil path all paths. Each
	// connection reconnects by itself. Its error is ErrNotFound.
	PeerReset(addr netip.Addr, lane, path *uint8) (int, error)
	// Config lists the keys, their values and the origins of these.
	Config() ([]ConfigValue, error)
	// Reload reads the configuration again. With apply it applies what it can, otherwise it
	// only reports what it would apply. Its error is ErrUnsupported or says what is wrong
	// with the configuration.
	Reload(apply bool) (Reload, error)
	// Ping sends a message to port 0 of p's address by its path, and waits for the answer, which
	// sets the round trip and how many paths there are. Its error is ctx's, wrapped with the state of the
	// connection, or ErrNotFound for an address that no peer may have, and a path that does not lead there.
	Ping(ctx context.Context, p *Ping) error
	Inspector
	Operator
	Tracer
	Capturer
	Upgrader
}

// Caller is who asks, by the credentials of its connection. Admin is set for root and the
// daemon's own user. They see everything and may reset connections. Other callers see the
// sockets of their own user, the usage of their user and account, and sums of the rest. They may look at peers and
// ping, but change nothing.
type Caller struct {
	UID     uint32
	Account string // the label of its account of quota.accounts; "": it counts for its user
	Admin   bool
}

// Serve answers one request of who with one response. The response is always valid JSON.
func Serve(ctx context.Context, req []byte, who Caller, b Backend) []byte {
	var r Request
	resp := Response{Schema: Schema}
	if err := decode(req, &r); err != nil {
		resp.Error = err
	} else {
		resp.Kind = r.Kind
		if err := handle(ctx, &r, who, b, &resp); err != nil {
			resp = Response{Schema: Schema, Kind: r.Kind, Error: toError(err)}
		}
	}
	out, err := json.Marshal(&resp)
	if err != nil {
		out, _ = json.Marshal(&Response{Schema: Schema, Kind: r.Kind, Error: errorf(CodeFailed, "encoding the answer: %v", err)})
	}
	return out
}

// decode is strict: a field that this daemon does not know could change the request's
// meaning.
func decode(req []byte, r *Request) *Error {
	// The version is checked first, because another version's fields may be of other types.
	var v struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(req, &v); err != nil {
		return errorf(CodeBadRequest, "request is not JSON: %v", err)
	}
	if v.Schema != Schema {
		return errorf(CodeVersion, "request has schema %q, this daemon speaks %q: use the rdsctl that came with it", v.Schema, Schema)
	}
	d := json.NewDecoder(bytes.NewReader(req))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return errorf(CodeBadRequest, "request: %v", err)
	}
	return nil
}

func handle(ctx context.Context, r *Request, who Caller, b Backend, resp *Response) (err error) {
	switch r.Kind {
	case KindStatus:
		s, err := b.Status()
		s.Normalize()
		s.Upgrade.shownTo(who)
		s.Users = who.users(s.Users)
		lists.Sort(s.Users, ByUser)
		resp.Status = &s
		return err
	case KindDevices:
		d, err := b.Devices()
		d.normalize()
		resp.Devices = &d
		return err
	case KindSockets, KindProcesses:
		resp.Sockets, err = b.Sockets()
		all := len(resp.Sockets)
		resp.Sockets = visible(nonNil(resp.Sockets), who, func(s *SocketInfo) uint32 { return s.Owner.UID })
		resp.OtherSockets = uint64(all - len(resp.Sockets))
		if r.Kind == KindProcesses {
			unreceived := visible(b.Unreceived(), who, func(u *Unreceived) uint32 { return u.Owner.UID })
			resp.Processes, resp.Sockets = Processes(resp.Sockets, unreceived), nil
			return err
		}
		lists.Sort(resp.Sockets, bySocket)
		return err
	case KindPeers:
		resp.Peers, err = b.Peers()
		resp.Peers = nonNil(resp.Peers)
		lists.Sort(resp.Peers, byPeer)
		return err
	case KindPing:
		resp.Ping, err = ping(ctx, r, b)
		return err
	case KindPeerReset:
		resp.PeerReset, err = peerReset(r, who.Admin, b)
		return err
	case KindConfig:
		resp.Config, err = b.Config()
		resp.Config = nonNil(resp.Config)
		return err
	case KindReload, KindDiff:
		resp.Reload, err = reload(who.Admin, r.Kind == KindReload, b)
		return err
	case KindDrain:
		resp.Drain, err = drain(r, who.Admin, b)
		return err
	case KindTrace:
		return trace(r, who, b, resp)
	case KindCapture:
		return capture(r, who, b, resp)
	case KindUpgrade:
		resp.Upgrade, err = upgrade(r, who.Admin, b)
		return err
	}
	if ok, err := look(r, who, b, resp); ok {
		return err
	}
	return errorf(CodeUnknownKind, "unknown request %q; this daemon knows %v", r.Kind, Kinds())
}

// visible is the part of list that who may see: what belongs to its user.
func visible[T any](list []T, who Caller, uid func(*T) uint32) []T {
	if who.Admin {
		return list
	}
	return slices.DeleteFunc(list, func(x T) bool { return uid(&x) != who.UID })
}

func ping(ctx context.Context, r *Request, b Backend) (*Ping, error) {
	if !r.Addr.IsValid() {
		return nil, errorf(CodeBadRequest, "ping: no address")
	}
	timeout := r.Timeout
	if timeout == 0 {
		timeout = DefaultPingTimeout
	}
	if timeout < 0 || timeout > MaxPingTimeout {
		return nil, errorf(CodeBadRequest, "ping: timeout %v is not between 0 and %v", timeout, MaxPingTimeout)
	}
	if r.Size < 0 || r.Size > MaxPingSize {
		return nil, errorf(CodeBadRequest, "ping: size %d is not between 0 and %d bytes", r.Size, MaxPingSize)
	}
	p := &Ping{Addr: r.Addr, Size: r.Size}
	if r.Path != nil {
		p.Path = *r.Path
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := b.Ping(ctx, p)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no answer from %v within %v: %w", r.Addr, timeout, err)
	}
	return p, err
}

func peerReset(r *Request, admin bool, b Backend) (*PeerReset, error) {
	if !admin {
		return nil, errorf(CodePermission, "peer reset: only root and the daemon's own user may do that")
	}
	if !r.Addr.IsValid() {
		return nil, errorf(CodeBadRequest, "peer reset: no address")
	}
	n, err := b.PeerReset(r.Addr, r.Lane, r.Path)
	return &PeerReset{Addr: r.Addr, Reset: n}, err
}

// Normalize replaces nil lists by empty ones, so that readers need no case for null.
func (s *Status) Normalize() {
	s.Listen = nonNil(s.Listen)
	s.Transports = nonNil(s.Transports)
	s.Warnings = nonNil(s.Warnings)
	s.Users = nonNil(s.Users)
	s.Counters = nonNil(s.Counters)
	s.MessageTime.Buckets, s.OperationTime.Buckets = nonNil(s.MessageTime.Buckets), nonNil(s.OperationTime.Buckets)
}

func nonNil[S ~[]T, T any](s S) S {
	if s == nil {
		return S{}
	}
	return s
}

// Parse reads a response. If the response carries an error, Parse returns that *Error. If
// it has another schema or is not of kind, Parse returns an error that says so.
func Parse(b []byte, kind Kind) (*Response, error) {
	var v struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("the daemon's answer is not JSON: %w", err)
	}
	if v.Schema != Schema {
		return nil, fmt.Errorf("the daemon answers with schema %q, this program reads %q: they are of %w", v.Schema, Schema, ErrSchema)
	}
	var r Response
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("the daemon's answer: %w", err)
	}
	if r.Error != nil {
		return &r, r.Error
	}
	if r.Kind != kind {
		return nil, fmt.Errorf("the daemon answered %q to %q", r.Kind, kind)
	}
	if !r.complete() {
		return nil, fmt.Errorf("the daemon's answer to %q is empty", kind)
	}
	return &r, nil
}

// complete reports whether the response has the field of its kind: the one that has the kind's
// name in JSON.
func (r *Response) complete() bool {
	name := strings.ReplaceAll(string(r.Kind), "-", "_")
	switch r.Kind {
	case KindReload, KindDiff:
		name = "reload"
	case KindTrace, KindCapture: // an answer may have no event and no byte
		name += "_state"
	}
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		if tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); tag == name {
			return !v.Field(i).IsZero()
		}
	}
	return false
}
