package main

import (
	"bytes"
	"os"
	"testing"
)

// TestUpToDate: the header in the tree is what gen writes now.
func TestUpToDate(t *testing.T) {
	have, err := os.ReadFile("../src/proto.h")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, header()) {
		t.Error("librds/src/proto.h is not up to date: go run ./librds/gen > librds/src/proto.h")
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{"MsgID": "msg_id", "SubOp": "sub_op", "NSeg": "n_seg", "HWM": "hwm", "HelloOK": "hello_ok", "OK": "ok"} {
		if got := snake(in); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}
