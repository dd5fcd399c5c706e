package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/version"
	"golang.org/x/sys/unix"
)

// bundle collects what somebody who helps needs to know: the daemon's answers, and what the
// host says about the daemon's process. It has no payload, no keys of regions, and no
// contents of files that tls.* name.
type bundle struct {
	*app
	ctx context.Context
	o   *options
	at  time.Time
	tar *tar.Writer
	dir string
	// index is the last file of the archive. It lists the files, and those that could not
	// be made.
	index []bundled
	err   error // of writing
}

type bundled struct {
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
	Error string `json:"error"` // why the file is missing, "" if it is there
}

// maxBundled is the most bytes of one file.
const maxBundled = 64 << 20

func bundleVerb(fs *flag.FlagSet) action {
	stacks := fs.Bool("stacks", false, "with the stacks of the daemon's goroutines; it stands still a moment for them")
	return func(ctx context.Context, a *app, o *options, file string) int {
		now := time.Now().UTC()
		host, err := os.Hostname()
		if err != nil {
			host = "host"
		}
		dir := "rdsd-bundle-" + filepath.Base(host) + "-" + now.Format("20060102T150405Z")
		if file == "" {
			file = dir + ".tar.gz"
		}
		to := a.stdout
		if file != "-" {
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return a.fail(o, "bundle", err)
			}
			defer f.Close()
			to = f
		}
		b := &bundle{app: a, ctx: ctx, o: o, at: now, dir: dir}
		answered, err := b.write(to, *stacks)
		if err != nil {
			if file != "-" {
				os.Remove(file)
			}
			return a.fail(o, "bundle", err)
		}
		if file != "-" {
			fmt.Fprintln(a.stdout, file)
		}
		for _, i := range b.index {
			if i.Error != "" {
				fmt.Fprintf(a.stderr, "rdsctl: bundle: without %s: %s\n", i.File, printable(i.Error))
			}
		}
		code, _ := exitOf(answered)
		if answered == nil {
			code = exitOK
		}
		return code
	}
}

// write writes the archive. answered is nil if the daemon answered, else why it did not.
func (b *bundle) write(to io.Writer, stacks bool) (answered, err error) {
	z := gzip.NewWriter(to)
	b.tar = tar.NewWriter(z)
	b.add("versions.json", b.versions())
	pid, answered := b.answers(stacks)
	if s, _, err := b.offline(""); err != nil {
		b.missing("statistics.json", err)
	} else {
		if pid == 0 {
			pid = s.PID
		}
		b.json("statistics.json", &ctl.Response{Schema: ctl.Schema, Kind: ctl.KindStatus, Status: s})
	}
	for name, read := range map[string]func(*stats.ListReader) *ctl.Response{"sockets-offline.json": ctl.OfflineSockets, "peers-offline.json": ctl.OfflinePeers} {
		if r, _, err := b.offlineList("", read); err != nil {
			b.missing(name, err)
		} else {
			b.json(name, r)
		}
	}
	d := &doctor{app: b.app, ctx: b.ctx, o: b.o, proc: "/proc", sys: "/sys"}
	d.run()
	b.add("doctor.json", d.json())
	if pid > 0 {
		for _, f := range []string{"limits", "status", "cgroup"} {
			b.file("process/"+f, filepath.Join("/proc", strconv.Itoa(pid), f))
		}
	}
	for name, path := range map[string]string{"os-release": "/etc/os-release", "meminfo": "/proc/meminfo", "modules": "/proc/modules"} {
		b.file("host/"+name, path)
	}
	b.json("index.json", b.index)
	return answered, errors.Join(b.err, b.tar.Close(), z.Close())
}

// answers adds the daemon's answers. It returns the daemon's process id, 0 if it is not
// known, and why the daemon did not answer.
func (b *bundle) answers(stacks bool) (pid int, answered error) {
	for _, q := range []struct {
		file string
		r    ctl.Request
	}{
		{"status", ctl.Request{Kind: ctl.KindStatus}},
		{"config", ctl.Request{Kind: ctl.KindConfig}},
		{"config-diff", ctl.Request{Kind: ctl.KindDiff}},
		{"sockets", ctl.Request{Kind: ctl.KindSockets}},
		{"peers", ctl.Request{Kind: ctl.KindPeers}},
		{"backlog", ctl.Request{Kind: ctl.KindBacklog, Limit: ctl.MaxLimit}},
		{"stalls", ctl.Request{Kind: ctl.KindStalls}},
		{"congested", ctl.Request{Kind: ctl.KindCongested}},
		{"barriers", ctl.Request{Kind: ctl.KindBarriers}},
		{"keys", ctl.Request{Kind: ctl.KindKeys}},
		{"events", ctl.Request{Kind: ctl.KindEvents, Limit: 4096}},
		{"errors", ctl.Request{Kind: ctl.KindErrors}},
		{"stacks", ctl.Request{Kind: ctl.KindStacks}},
	} {
		if q.r.Kind == ctl.KindStacks && !stacks {
			continue
		}
		name := q.file + ".json"
		raw, r, err := b.once(b.ctx, b.o, q.r)
		switch {
		case err != nil:
			if q.r.Kind == ctl.KindStatus {
				answered = err
			}
			b.missing(name, err)
			if q.r.Kind == ctl.KindStatus {
				switch code, _ := exitOf(err); code {
				case exitTimeout, exitNoDaemon, exitPermission:
					b.missing("the other answers", errors.New("for the same reason"))
					return pid, answered // the other requests would take as long or fail, too
				}
			}
		case q.r.Kind == ctl.KindStacks:
			b.add("stacks.txt", []byte(r.Stacks))
		default:
			if r.Status != nil {
				pid = r.Status.PID
			}
			b.json(name, json.RawMessage(raw))
		}
	}
	return pid, answered
}

func (b *bundle) versions() []byte {
	var u unix.Utsname
	_ = unix.Uname(&u)
	out, _ := json.MarshalIndent(map[string]string{
		"rdsctl": version.String(), "go": runtime.Version(), "arch": runtime.GOARCH, "time": b.at.Format(time.RFC3339),
		"kernel": unix.ByteSliceToString(u.Release[:]), "host": unix.ByteSliceToString(u.Nodename[:]),
	}, "", "  ")
	return out
}

func (b *bundle) missing(name string, err error) {
	b.index = append(b.index, bundled{File: name, Error: err.Error() + cure(err)})
}

func (b *bundle) json(name string, v any) {
	out, err := indented(v)
	if err != nil {
		b.missing(name, err)
		return
	}
	b.add(name, out)
}

func (b *bundle) file(name, path string) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(f, maxBundled)); err == nil {
			b.add(name, data)
			return
		}
	}
	b.missing(name, err)
}

func (b *bundle) add(name string, data []byte) {
	if b.err != nil {
		return
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: b.dir + "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.at}
	if b.err = b.tar.WriteHeader(h); b.err == nil {
		_, b.err = b.tar.Write(data)
	}
	b.index = append(b.index, bundled{File: name, Bytes: len(data)})
}
