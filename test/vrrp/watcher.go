package vrrp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const (
	// roleVariable selects this program's role inside the namespaces; without it, it does its usual work.
	roleVariable = "ANYCCM_VRRP_ROLE"
	nameVariable = "ANYCCM_VRRP_NAME"
	roleServer   = "server"
	roleClient   = "client"
)

// Main does what the network has started this program for, and never returns then. Whoever uses a Network calls it first in main.
func Main() {
	var err error
	ctx := context.Background() // the network ends this program by a signal
	switch os.Getenv(roleVariable) {
	case "":
		return
	case roleServer:
		err = serve(ctx, os.Getenv(nameVariable))
	case roleClient:
		err = ask(ctx, os.Getenv(nameVariable))
	default:
		err = fmt.Errorf("%s: use %s or %s", roleVariable, roleServer, roleClient)
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	os.Exit(1)
}

// serve is a node's kube-proxy: it says which node answers.
func serve(ctx context.Context, name string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "0.0.0.0:8080")
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(c, name) // a client that disconnected
		_ = c.Close()
	}
}

// ask asks an address over and over who answers.
func ask(ctx context.Context, address string) error {
	for {
		c, err := (&net.Dialer{Timeout: 100 * time.Millisecond}).DialContext(ctx, "tcp", address+":8080")
		who := ""
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond))
			text, _ := io.ReadAll(c) // what is no answer says nobody
			who = strings.TrimSpace(string(text))
			_ = c.Close()
		}
		if _, err := fmt.Printf("answer %d %s\n", time.Now().UnixMilli(), who); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

// role starts this program in a namespace.
func (n *Network) role(node, role, name string) (io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := n.In(node, self)
	cmd.Env = append(cmd.Env, roleVariable+"="+role, nameVariable+"="+name)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	ended, err := n.start(cmd)
	if err != nil {
		return nil, err
	}
	n.group.Go(func() {
		<-ended
		_ = in.Close()
	})
	return out, nil
}

// Serve has a node answer at all addresses that it has, as kube-proxy would.
func (n *Network) Serve(node string) error {
	out, err := n.role(node, roleServer, node)
	if err != nil {
		return err
	}
	n.group.Go(func() { _, _ = io.Copy(io.Discard, out) })
	return nil
}

// Watcher sees who answers at an address.
type Watcher struct {
	n       *Network
	address string
	lines   chan answered
	last    answered
	served  time.Time
	longest time.Duration
}

type answered struct {
	at  time.Time
	who string
}

// Watch has the client begin to ask an address.
func (n *Network) Watch(address string) (*Watcher, error) {
	w := &Watcher{n: n, address: address, lines: make(chan answered, 100000)}
	out, err := n.role(Client, roleClient, address)
	if err != nil {
		return nil, err
	}
	n.group.Go(func() {
		defer close(w.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			var at int64
			var who string
			if got, _ := fmt.Sscanf(scanner.Text(), "answer %d %s", &at, &who); got > 0 {
				select {
				case w.lines <- answered{time.UnixMilli(at), who}:
				case <-n.ctx.Done():
				}
			}
		}
	})
	return w, nil
}

// next takes what the client saw next.
func (w *Watcher) next() error {
	select {
	case a, ok := <-w.lines:
		if !ok {
			return fmt.Errorf("the client that asks %s ended", w.address)
		}
		if !w.served.IsZero() {
			w.served = w.served.Add(blind(w.last.at, a.at))
		}
		if a.who != "" {
			if !w.served.IsZero() {
				w.longest = max(w.longest, a.at.Sub(w.served))
			}
			w.served = a.at
		}
		w.last = a
		return nil
	case <-w.n.ctx.Done():
		return w.n.ctx.Err()
	}
}

// longestLook is how long the client takes for a look at most, with its pause, unless the machine lets it wait.
const longestLook = 500 * time.Millisecond

// blind is for how long between two looks nobody looked, because the machine let the client wait: it says nothing about who answered.
func blind(before, at time.Time) time.Duration {
	if before.IsZero() {
		return 0
	}
	return max(0, at.Sub(before)-longestLook)
}

// Until waits until a node answers, or one that is not named so with a leading "!"; "" waits until nobody does.
func (w *Watcher) Until(who string, within time.Duration) error {
	began := time.Now()
	for !w.is(who) || w.last.at.Before(began) {
		if err := w.next(); err != nil {
			return err
		}
		if time.Since(began) > within {
			return fmt.Errorf("waited %s for %q to answer at %s, and %q does", within, who, w.address, w.last.who)
		}
	}
	return nil
}

func (w *Watcher) is(who string) bool {
	if other, not := strings.CutPrefix(who, "!"); not {
		return w.last.who != "" && w.last.who != other
	}
	return w.last.who == who
}

// Stays is nil where one node alone answers for a while.
func (w *Watcher) Stays(who string, during time.Duration) error {
	for began := time.Now(); time.Since(began) < during || w.last.at.Before(began.Add(during)); {
		if err := w.next(); err != nil {
			return err
		}
		if w.last.who != "" && w.last.who != who {
			return fmt.Errorf("%s answers at %s instead of %s", w.last.who, w.address, who)
		}
	}
	return nil
}

// Who answered last.
func (w *Watcher) Who() string { return w.last.who }

// At is when that was.
func (w *Watcher) At() time.Time { return w.last.at }

// Gap is the longest time without an answer since Forget, without the times in which nobody looked.
func (w *Watcher) Gap() time.Duration { return w.longest }

// Forget forgets how long nobody answered.
func (w *Watcher) Forget() { w.longest = 0 }

// Until looks until something holds.
func (n *Network) Until(within time.Duration, what string, done func() bool) error {
	for began := time.Now(); !done(); time.Sleep(pause) {
		if time.Since(began) > within || n.ctx.Err() != nil {
			return fmt.Errorf("waited %s: %s", within, what)
		}
	}
	return nil
}
