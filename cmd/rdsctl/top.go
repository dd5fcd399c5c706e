package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/rdsd/rdsd/internal/ctl"
)

// The views of top, by the keys that choose them.
const (
	topPeers     = 'p'
	topProcesses = 'a'
	topSockets   = 'o'
	topBacklog   = 'b'
	topEvents    = 'e'
	topCounters  = 'c'
)

// topAbout is what the manual says about top.
const topAbout = "Keys: p peers, a processes (applications), o sockets, b backlog, e events, c counters, tab the next of these, s another order, arrows scroll, space pause, q end. " +
	"SENT and RECEIVED are bytes per second, RDMA included; P99 is of the messages acked since the last look, RTT of the daemons alone. NO_COLOR turns colours off."

// topEventsMost is how many events top asks for.
const topEventsMost = 200

func topVerb(fs *flag.FlagSet) action {
	every := fs.Duration("d", time.Second, "`time` between two looks")
	once := fs.Bool("once", false, "look twice, -d apart, print one screen without colours, and end; that is also what happens if standard output is no terminal")
	view := fs.String("view", "peers", "what to show first: "+viewNames())
	return func(ctx context.Context, a *app, o *options, _ string) int {
		t := newTop()
		switch {
		case *every < 50*time.Millisecond:
			return a.wrong("top", "-d %v: want 50ms or more", *every)
		case !t.show(*view):
			return a.wrong("top", "-view %s: want one of %s", *view, viewNames())
		}
		see := func() look { return lookOnline(ctx, a, o) }
		if o.offline {
			see = func() look { return lookOffline(a, o.stats) }
		}
		if *once || a.screen == nil {
			return t.once(ctx, a, *every, see)
		}
		if !a.screen.keys() {
			fmt.Fprintln(a.stderr, "rdsctl: top: standard input is no terminal, so that there are no keys: rdsctl top -once")
			return exitFailed
		}
		t.colour = true
		m := &topModel{t: t, every: *every, look: see}
		m.w, m.h = a.screen.size()
		_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(a.screen.in), tea.WithOutput(a.screen.out)).Run()
		if err != nil && !errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, tea.ErrInterrupted) {
			fmt.Fprintf(a.stderr, "rdsctl: top: %v\n", err)
			return exitFailed
		}
		return exitOK
	}
}

// once prints one plain screen, with the rates between two looks.
func (t *topState) once(ctx context.Context, a *app, every time.Duration, see func() look) int {
	t.take(see())
	if t.err != nil {
		return a.fail(&options{}, ctl.KindStatus, t.err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(every):
	}
	t.take(see())
	if t.err != nil {
		return a.fail(&options{}, ctl.KindStatus, t.err)
	}
	fmt.Fprintln(a.stdout, t.plain())
	return exitOK
}

// topModel is top on a terminal.
type topModel struct {
	t     *topState
	every time.Duration
	look  func() look
	w, h  int
}

type topTick struct{}

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return m.ask }

// ask runs beside the screen, so that keys work while the daemon is slow.
func (m *topModel) ask() tea.Msg { return m.look() }

func (m *topModel) wait() tea.Cmd {
	return tea.Tick(m.every, func(time.Time) tea.Msg { return topTick{} })
}

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.w, m.h = msg.Width, msg.Height
	case tea.KeyPressMsg:
		if !m.t.key(msg.String()) {
			return m, tea.Quit
		}
	case look:
		if !m.t.paused {
			m.t.take(msg)
		}
		return m, m.wait()
	case topTick:
		if m.t.paused {
			return m, m.wait()
		}
		return m, m.ask
	}
	return m, nil
}

// View implements tea.Model.
func (m *topModel) View() tea.View {
	v := tea.NewView(m.t.draw(m.w, m.h))
	v.AltScreen = true
	v.WindowTitle = "rdsctl top"
	return v
}

// look is what top learns in one look.
type look struct {
	at      time.Time
	status  *ctl.Status
	peers   []ctl.PeerInfo
	sockets []ctl.SocketInfo
	backlog []ctl.BacklogInfo
	events  []ctl.EventInfo
	cong    []ctl.CongestedInfo
	errors  []ctl.ErrorInfo
	err     error
}

// facts is what the daemon is judged by.
func (l *look) facts() *ctl.Facts {
	return &ctl.Facts{Now: l.at, Status: l.status, Peers: l.peers, Congested: l.cong, Backlog: l.backlog, Errors: l.errors}
}

// lookOnline asks the daemon for everything that is shown.
func lookOnline(ctx context.Context, a *app, o *options) (l look) {
	c, err := a.connect(ctx, o)
	if err != nil {
		return look{err: err}
	}
	defer c.Close()
	ask := func(k ctl.Kind, limit int) *ctl.Response {
		if l.err != nil {
			return &ctl.Response{}
		}
		_, r, err := call(ctx, c, o, ctl.Request{Kind: k, Limit: limit})
		if l.err = err; err != nil {
			return &ctl.Response{}
		}
		return r
	}
	l.status = ask(ctl.KindStatus, 0).Status
	l.peers = ask(ctl.KindPeers, 0).Peers
	l.sockets = ask(ctl.KindSockets, 0).Sockets
	l.backlog = ask(ctl.KindBacklog, 0).Backlog
	l.events = ask(ctl.KindEvents, topEventsMost).Events
	l.cong = ask(ctl.KindCongested, 0).Congested
	l.errors = ask(ctl.KindErrors, 0).Errors
	l.at = time.Now()
	return l
}

// lookOffline reads the daemon's mappings. An ordinary user can read the counters only.
func lookOffline(a *app, path string) (l look) {
	l.status, _, l.err = a.offline(path)
	if r, _, err := a.offlineList(path, ctl.OfflinePeers); err == nil {
		l.peers = r.Peers
	}
	if r, _, err := a.offlineList(path, ctl.OfflineSockets); err == nil {
		l.sockets = r.Sockets
	}
	l.at = time.Now()
	return l
}

// key handles a key. It returns false for the keys that end top.
func (t *topState) key(k string) bool {
	switch k {
	case "q", "ctrl+c", "ctrl+d", "esc":
		return false
	case "s":
		t.sort[t.view]++
	case "space", " ":
		t.paused = !t.paused
	case "tab", "right":
		t.step(1)
	case "shift+tab", "left":
		t.step(-1)
	case "down", "j":
		t.skip++
	case "up", "k":
		t.skip = max(0, t.skip-1)
	case "home", "g":
		t.skip = 0
	default:
		if r := []rune(k); len(r) == 1 && slices.ContainsFunc(topViews(), func(v topView) bool { return v.key == r[0] }) {
			t.view, t.skip = r[0], 0
		}
	}
	return true
}

// step shows the view n further.
func (t *topState) step(n int) {
	views := topViews()
	i := slices.IndexFunc(views, func(v topView) bool { return v.key == t.view })
	t.view, t.skip = views[(i+n+len(views))%len(views)].key, 0
}

// show chooses a view by its name.
func (t *topState) show(name string) bool {
	for _, v := range topViews() {
		if v.name == name {
			t.view = v.key
			return true
		}
	}
	return false
}
