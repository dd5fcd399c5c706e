// Command readserver serves a file from memory by RDMA. A client asks once and gets a
// cookie. With the cookie it reads the file in pieces, several at a time. The server's
// program has nothing to do for that.
//
//	readserver -bind 10.0.0.1:4003 FILE
//	readserver -bind 10.0.0.2:0 -from 10.0.0.1:4003 >COPY
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/rds"
)

const (
	piece = 256 << 10 // bytes of one RDMA read
	depth = 8         // reads in progress
)

func main() {
	bind := flag.String("bind", "127.0.0.1:0", "`address:port` of the socket")
	from := flag.String("from", "", "`address:port` of the server; without it, serve FILE")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bind, *from, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "readserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bind, from string, args []string) error {
	local, err := netip.ParseAddrPort(bind)
	if err != nil {
		return fmt.Errorf("-bind: %w", err)
	}
	c, err := rds.Open(ctx, rds.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Bind(local)
	if err != nil {
		return err
	}
	if from == "" {
		if len(args) != 1 {
			return errors.New("name the file to serve, or a server with -from")
		}
		return serve(ctx, c, s, args[0])
	}
	server, err := netip.ParseAddrPort(from)
	if err != nil {
		return fmt.Errorf("-from: %w", err)
	}
	return fetch(ctx, c, s, server, os.Stdout)
}

func serve(ctx context.Context, c *rds.Client, s *rds.Socket, name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	mem, err := c.Alloc(max(len(data), 1)) // an empty file, too, needs a region for its cookie
	if err != nil {
		return err
	}
	copy(mem.Bytes(), data)
	region, err := s.Register(mem, 0, len(mem.Bytes()), rds.AllowRead)
	if err != nil {
		return err
	}
	answer := rds.Message{Payload: binary.BigEndian.AppendUint64(nil, uint64(len(data))), Cookie: region.Cookie()}
	fmt.Println("serving", s.LocalAddrPort())
	for {
		if _, err := s.Wait(ctx, rds.WaitSet{Message: true}); errors.Is(err, context.Canceled) {
			return nil
		} else if err != nil {
			return err
		}
		if _, answer.Addr, err = s.RecvFrom(nil); err != nil {
			return err
		}
		if _, err := s.Send(context.Background(), &answer); err != nil {
			return err
		}
	}
}

// fetch keeps up to depth reads in progress, each into a slot of the buffer, and writes the
// pieces to out in order. A slot is reused when its piece was written.
func fetch(ctx context.Context, c *rds.Client, s *rds.Socket, server netip.AddrPort, out io.Writer) error {
	if _, err := s.SendTo(nil, server); err != nil {
		return err
	}
	if err := s.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	m := rds.Received{Payload: make([]byte, 8)}
	if err := s.Recv(context.Background(), &m); err != nil {
		return fmt.Errorf("no file at %s: %w", server, err)
	}
	size := binary.BigEndian.Uint64(m.Payload)
	mem, err := c.Alloc(depth * piece)
	if err != nil {
		return err
	}
	length := func(off uint64) int { return int(min(piece, size-off)) }
	var ids [depth]uint64
	for read, written := uint64(0), uint64(0); written < size; {
		for ; read < size && read < written+depth*piece; read += piece {
			slot := int(read / piece % depth)
			op := rds.RDMA{Cookie: m.Cookie, RemoteOff: read, Notify: true, Silent: true,
				Local: []rds.Segment{{Buf: mem, Off: slot * piece, Len: length(read)}}}
			if ids[slot], err = s.Send(context.Background(), &rds.Message{Addr: server, Op: &op}); err != nil {
				return err
			}
		}
		slot := int(written / piece % depth)
		done, err := s.WaitOp(ctx, server.Addr(), ids[slot])
		if err != nil {
			return err
		}
		if err := done.Err(); err != nil { // a program that must go on would read this piece again
			return fmt.Errorf("piece at %d: %w", written, err)
		}
		if _, err := out.Write(mem.Bytes()[slot*piece:][:length(written)]); err != nil {
			return err
		}
		written += piece
	}
	return nil
}
