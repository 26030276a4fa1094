package keepalived

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// This file tries what the provider writes with the real keepalived, in network namespaces: two nodes and a client on one switch. It
// needs neither root nor an installed package; where namespaces cannot be made, or the package is not to be had, the tests say so.

// packages are what keepalived of Debian needs. They are unpacked into a folder, and not installed.
var packages = []string{"keepalived", "libnl-3-200", "libnl-genl-3-200", "libnftnl11", "libsnmp40", "libsnmp-base", "libpci3", "libwrap0"}

const (
	envInside = "ANYCCM_KEEPALIVED_INSIDE" // what the process in the namespaces does
	envFiles  = "ANYCCM_KEEPALIVED_FILES"
	envRoot   = "ANYCCM_KEEPALIVED_ROOT" // a folder with the unpacked packages
)

// unpacked is the folder of the unpacked packages.
func unpacked(t *testing.T) string {
	t.Helper()
	if root := os.Getenv(envRoot); root != "" {
		return root
	}
	dir := t.TempDir()
	for _, args := range append([][]string{append([]string{"apt-get", "download"}, packages...)}, []string{"sh", "-c", "for p in *.deb; do dpkg -x $p root || exit 1; done"}) {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("the package keepalived is not to be had here (%v: %s); set %s to a folder where it is unpacked", err, out, envRoot)
		}
	}
	return filepath.Join(dir, "root")
}

// inNamespaces runs a test of this file in namespaces of its own.
func inNamespaces(t *testing.T, test, files string) {
	t.Helper()
	root := unpacked(t)
	isolate := []string{"-Urnmpf", "--mount-proc"}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(isolate, "ip", "netns", "list")...).CombinedOutput(); err != nil {
		t.Skipf("namespaces cannot be made here: %v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", append(isolate, os.Args[0], "-test.run=^"+test+"$", "-test.v", "-test.timeout=2m")...)
	cmd.Env = append(os.Environ(), envInside+"="+test, envFiles+"="+files, envRoot+"="+root,
		"LD_LIBRARY_PATH="+filepath.Join(root, "usr/lib/x86_64-linux-gnu")+":"+filepath.Join(root, "lib/x86_64-linux-gnu"))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
}

// published are the files that the provider writes for a growing number of Services.
func published(t *testing.T) (texts []string) {
	t.Helper()
	env := map[string]string{envAnnouncer: announcerKeepalived, envServiceCIDR: "10.98.0.0/24,fd98::/64"}
	onStage(t, env, func(t *testing.T, s *stage) {
		s.Register(node("n1", "10.99.0.11"))
		s.Register(node("n2", "10.99.0.12"))
		c := s.start()
		for number := range 3 {
			one := service("default", number)
			if number == 2 {
				one = service("default", number, policy(v1.IPFamilyPolicyRequireDualStack, v1.IPv4Protocol, v1.IPv6Protocol))
			}
			s.Apply(one)
			s.served(c, one)
			texts = append(texts, s.api.ConfigMap(defaultNamespace, defaultBook).Data[keyConfiguration])
		}
	})
	return texts
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

// TestKeepalivedTakesFiles: keepalived itself finds nothing to say about any of the files, on any node that they name. On others it
// refuses them, and so holds no addresses there.
func TestKeepalivedTakesFiles(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(envFiles); os.Getenv(envInside) == t.Name() {
		n := newNetwork(t, "n1")
		files, err := filepath.Glob(filepath.Join(dir, "*.conf"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			for _, id := range []string{"node-1.example.com", "node-2", "node-3", "stranger"} {
				out, err := n.in("n1", n.keepalived, "-t", "-i", id, "-f", file).CombinedOutput()
				text, readErr := os.ReadFile(file)
				require.NoError(t, readErr)
				if strings.Contains(string(text), "vrrp_instance") && !strings.Contains(string(text), "@"+id+" interface ") {
					assert.Contains(t, string(out), "Unknown interface", "%s on %s: %v", filepath.Base(file), id, err)
					continue
				}
				assert.NoError(t, err, "%s on %s: %s", filepath.Base(file), id, out)
			}
		}
		return
	}
	dir := t.TempDir()
	for _, c := range []struct{ n4, n6 int }{{0, 0}, {1, 0}, {2, 0}, {300, 0}, {1, 1}, {0, 2}, {3, 300}} {
		for i, nodes := range [][]*v1.Node{nil, threeNodes()[:1], threeNodes()} {
			writeFile(t, dir, fmt.Sprintf("%d-%d-%d.conf", c.n4, c.n6, i), render(testLayout(), addresses(c.n4, c.n6), nodes))
		}
	}
	inNamespaces(t, t.Name(), dir)
}

// TestFailover: two nodes run keepalived with the file that the provider published. The address moves when a node stops and when it
// loses its link, and stays when the other one comes back; a new address is there after a reload while the first one stays up.
func TestFailover(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(envFiles); os.Getenv(envInside) == t.Name() {
		failover(t, newNetwork(t, "n1", "n2", "n3", "cl"), dir)
		return
	}
	dir := t.TempDir()
	for i, text := range published(t) {
		writeFile(t, dir, fmt.Sprintf("%d.conf", i), text)
	}
	inNamespaces(t, t.Name(), dir)
}

func failover(t *testing.T, n *network, dir string) {
	t.Helper()
	for _, name := range []string{"n1", "n2", "n3"} {
		n.background(name, n.self("TestFailoverServer"), "NAME="+name)
		n.publish(name, dir, "0.conf")
		n.help(name)
	}
	n.run("n1")
	first := n.watch("10.98.0.1")
	first.until("n1", 10*time.Second)
	n.run("n2") // whoever comes later does not take over
	n.run("n3") // the file does not name it
	first.stays("n1", 5*time.Second)

	for _, name := range []string{"n1", "n2", "n3"} {
		n.publish(name, dir, "2.conf")
	}
	second := n.watch("10.98.0.2")
	second.until("n1", 10*time.Second)
	n.until(5*time.Second, "the IPv6 address moves with the others", func() bool { return strings.Contains(n.addresses("n1"), "fd98::") })
	assert.Less(t, first.gap(), 500*time.Millisecond, "a reload with more addresses interrupts none")
	assert.NotContains(t, n.addresses("n3"), "10.98.", "a node that nobody talks to holds no address")

	n.stop("n1")
	t.Logf("node n1 stops: %s without an answer", first.until("n2", 10*time.Second))
	second.until("n2", 10*time.Second)
	assert.Less(t, first.gap(), 3*time.Second)
	n.run("n1")
	first.stays("n2", 3*time.Second)

	first.forget()
	n.must("sw", "ip", "link", "set", "p-n2", "down")
	t.Logf("node n2 loses its link: %s without an answer", first.until("n1", 15*time.Second))
	assert.Less(t, first.gap(), 6*time.Second)
	n.must("sw", "ip", "link", "set", "p-n2", "up")
	first.stays("n1", 3*time.Second)

	writeFile(t, dir, "broken.conf", "vrrp_instance broken {\n@n1 interface eth0\n")
	n.publish("n1", dir, "broken.conf")
	first.stays("n1", 5*time.Second)
	killed(t, n, first, dir)
}

// killed: keepalived is killed on the node that holds the addresses, and leaves them there. The other node takes over; when the first one
// starts again it gives back also those that left the file meanwhile.
func killed(t *testing.T, n *network, first *watcher, dir string) {
	t.Helper()
	first.forget()
	n.kill("n1")
	first.until("n2", 15*time.Second)
	require.Contains(t, n.addresses("n1"), "10.98.0.3/32", "they are there still")
	for _, name := range []string{"n1", "n2"} {
		n.publish(name, dir, "1.conf")
	}
	n.until(10*time.Second, "the address leaves the other node", func() bool { return !strings.Contains(n.addresses("n2"), "10.98.0.3/32") })
	n.run("n1")
	n.until(10*time.Second, "nothing is left of the addresses", func() bool {
		all := n.addresses("n1")
		return !strings.Contains(all, "10.98.") && !strings.Contains(all, "fd98:")
	})
	first.stays("n2", 3*time.Second)
}

// TestFailoverServer is a node's kube-proxy: it says which node answers.
func TestFailoverServer(t *testing.T) {
	t.Parallel()
	if os.Getenv(envInside) != t.Name() {
		return // it is a part of TestFailover
	}
	l, err := net.Listen("tcp", "0.0.0.0:8080")
	require.NoError(t, err)
	for {
		c, err := l.Accept()
		require.NoError(t, err)
		_, _ = fmt.Fprintln(c, os.Getenv("NAME"))
		_ = c.Close()
	}
}

// TestFailoverClient asks an address over and over who answers.
func TestFailoverClient(t *testing.T) {
	t.Parallel()
	if os.Getenv(envInside) != t.Name() {
		return // it is a part of TestFailover
	}
	for {
		c, err := net.DialTimeout("tcp", os.Getenv("NAME")+":8080", 100*time.Millisecond)
		who := ""
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond))
			text, _ := io.ReadAll(c)
			who = strings.TrimSpace(string(text))
			_ = c.Close()
		}
		fmt.Printf("answer %d %s\n", time.Now().UnixMilli(), who)
		pause()
	}
}

// pause is the time between two looks.
func pause() { time.Sleep(20 * time.Millisecond) }

// network are namespaces on one switch.
type network struct {
	t          *testing.T
	dir        string
	keepalived string
	processes  map[string]*exec.Cmd
}

func newNetwork(t *testing.T, names ...string) *network {
	t.Helper()
	n := &network{t: t, dir: t.TempDir(), keepalived: filepath.Join(os.Getenv(envRoot), "usr/sbin/keepalived"), processes: map[string]*exec.Cmd{}}
	n.must("", "mount", "-t", "tmpfs", "tmpfs", "/run")
	for _, name := range append([]string{"sw"}, names...) {
		n.must("", "ip", "netns", "add", name)
		n.must(name, "ip", "link", "set", "lo", "up")
	}
	n.must("sw", "ip", "link", "add", "switch0", "type", "bridge")
	n.must("sw", "ip", "link", "set", "switch0", "up")
	for i, name := range names {
		n.must("sw", "ip", "link", "add", "p-"+name, "type", "veth", "peer", "name", "eth0", "netns", name)
		n.must("sw", "ip", "link", "set", "p-"+name, "master", "switch0", "up")
		n.must(name, "ip", "address", "add", fmt.Sprintf("10.99.0.%d/16", 11+i), "dev", "eth0")
		n.must(name, "ip", "link", "set", "eth0", "up")
		n.must(name, "ip", "route", "add", "10.98.0.0/16", "dev", "eth0")
	}
	return n
}

// in is a command in a namespace.
func (n *network) in(name string, args ...string) *exec.Cmd {
	if name != "" {
		args = append([]string{"ip", "netns", "exec", name}, args...)
	}
	return exec.CommandContext(n.t.Context(), args[0], args[1:]...)
}

func (n *network) must(name string, args ...string) {
	n.t.Helper()
	out, err := n.in(name, args...).CombinedOutput()
	require.NoError(n.t, err, "%q: %s", args, out)
}

func (*network) self(test string) []string {
	return []string{os.Args[0], "-test.run=^" + test + "$", "-test.v"}
}

// background starts a part of the test in a namespace, and returns what it prints.
func (n *network) background(name string, args []string, env ...string) io.Reader {
	n.t.Helper()
	cmd := n.in(name, args...)
	cmd.Env = append(append(os.Environ(), env...), envInside+"="+strings.Trim(strings.TrimPrefix(args[1], "-test.run="), "^$"))
	out, err := cmd.StdoutPipe()
	require.NoError(n.t, err)
	require.NoError(n.t, cmd.Start())
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return out
}

// script is the command of a container of the DaemonSet of the documentation, with the folders of a node.
func (n *network) script(node, container string) string {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "keepalived", "daemonset.yaml"))
	require.NoError(n.t, err)
	var set appsv1.DaemonSet
	require.NoError(n.t, yaml.UnmarshalStrict(text, &set))
	for _, c := range set.Spec.Template.Spec.Containers {
		if c.Name == container {
			require.Equal(n.t, []string{"/bin/sh", "-c"}, c.Command[:2])
			return strings.NewReplacer("/active", n.folder(node, "active"), "/published", n.folder(node, "published")).Replace(c.Command[2])
		}
	}
	n.t.Fatalf("the DaemonSet has no container %s", container)
	return ""
}

// folder is a volume of the DaemonSet's pod on a node.
func (n *network) folder(node, name string) string {
	path := filepath.Join(n.dir, node, name)
	require.NoError(n.t, os.MkdirAll(path, 0o755))
	return path
}

// container starts a container of the DaemonSet on a node.
func (n *network) container(node, name string) *exec.Cmd {
	n.t.Helper()
	cmd := n.in(node, "/bin/sh", "-c", n.script(node, name))
	cmd.Env = append(os.Environ(), "NODE_NAME="+node, "PATH="+filepath.Dir(n.keepalived)+":"+os.Getenv("PATH"))
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(n.t, cmd.Start())
	n.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // keepalived takes its children along
		_ = cmd.Wait()
		if n.t.Failed() {
			n.t.Logf("%s on %s:\n%s", name, node, log)
		}
	})
	return cmd
}

// run starts keepalived on a node as the DaemonSet of the documentation does, and help what has it read new files.
func (n *network) run(name string) {
	n.t.Helper()
	n.processes[name] = n.container(name, "keepalived")
}

func (n *network) help(name string) {
	n.t.Helper()
	n.container(name, "reload")
}

// stop ends keepalived on a node as kubelet does.
func (n *network) stop(name string) {
	n.t.Helper()
	require.NoError(n.t, n.processes[name].Process.Signal(syscall.SIGTERM))
	_ = n.processes[name].Wait()
}

// kill ends keepalived on a node with its child, so that neither cleans up.
func (n *network) kill(name string) {
	n.t.Helper()
	child, err := os.ReadFile(filepath.Join(n.folder(name, "active"), "vrrp.pid"))
	require.NoError(n.t, err)
	vrrp := strings.TrimSpace(string(child))
	n.must("", "kill", "-STOP", vrrp) // it hears of its parent's end, and would still take the addresses away
	n.must("", "kill", "-9", strconv.Itoa(n.processes[name].Process.Pid), vrrp)
	_ = n.processes[name].Wait()
}

// publish gives a node another file, as kubelet does.
func (n *network) publish(name, dir, file string) {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, file))
	require.NoError(n.t, err)
	writeFile(n.t, n.folder(name, "published"), "keepalived.conf", string(text))
}

// addresses are those of a node, as it shows them.
func (n *network) addresses(name string) string {
	out, _ := n.in(name, "ip", "address", "show", "dev", "eth0").CombinedOutput()
	return string(out)
}

func (n *network) until(within time.Duration, what string, done func() bool) {
	n.t.Helper()
	for began := time.Now(); !done(); pause() {
		require.Less(n.t, time.Since(began), within, what)
	}
}

// watcher sees who answers at an address.
type watcher struct {
	n       *network
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

// watch begins to ask an address.
func (n *network) watch(address string) *watcher {
	w := &watcher{n: n, address: address, lines: make(chan answered, 100000)}
	out := n.background("cl", n.self("TestFailoverClient"), "NAME="+address)
	go func() {
		defer close(w.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			var at int64
			var who string
			if got, _ := fmt.Sscanf(scanner.Text(), "answer %d %s", &at, &who); got > 0 {
				w.lines <- answered{time.UnixMilli(at), who}
			}
		}
	}()
	return w
}

// next takes what the client saw next.
func (w *watcher) next(ctx context.Context) error {
	select {
	case a, ok := <-w.lines:
		if !ok {
			return errors.New("the client ended")
		}
		if a.who != "" {
			if !w.served.IsZero() {
				w.longest = max(w.longest, a.at.Sub(w.served))
			}
			w.served = a.at
		}
		w.last = a
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until waits until a node answers, and returns the longest time without an answer.
func (w *watcher) until(who string, within time.Duration) time.Duration {
	w.n.t.Helper()
	began := time.Now()
	for w.last.who != who || w.last.at.Before(began) {
		require.NoError(w.n.t, w.next(w.n.t.Context()))
		require.Less(w.n.t, time.Since(began), within, "%s does not answer at %s, but %q", who, w.address, w.last.who)
	}
	return w.longest
}

// stays demands that one node alone answers for a while.
func (w *watcher) stays(who string, during time.Duration) {
	w.n.t.Helper()
	for began := time.Now(); time.Since(began) < during || w.last.at.Before(began.Add(during)); {
		require.NoError(w.n.t, w.next(w.n.t.Context()))
		if w.last.who != "" {
			require.Equal(w.n.t, who, w.last.who, "at %s", w.address)
		}
	}
}

func (w *watcher) gap() time.Duration { return w.longest }

func (w *watcher) forget() { w.longest = 0 }
