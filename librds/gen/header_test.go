package main

import (
	"bytes"
	"os"
	"testing"
)

// TestUpToDate: the headers in the tree are what gen writes now.
func TestUpToDate(t *testing.T) {
	for _, h := range []struct {
		path, args string
		want       []byte
	}{{"librds/src/proto.h", "", header()}, {"preload/src/kernel.h", " kernel", kernelHeader()}} {
		have, err := os.ReadFile("../../" + h.path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, h.want) {
			t.Errorf("%s is not up to date: go run ./librds/gen%s > %s", h.path, h.args, h.path)
		}
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{"MsgID": "msg_id", "SubOp": "sub_op", "NSeg": "n_seg", "HWM": "hwm", "HelloOK": "hello_ok", "OK": "ok"} {
		if got := snake(in); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}
