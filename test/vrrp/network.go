// Package vrrp runs the real keepalived in network namespaces: nodes and a client on one switch. The provider's own tests and
// test/realclouds share it. It needs neither root nor an installed package, but user namespaces, and Debian's packages or a folder where
// they are unpacked.
package vrrp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// packages are the dependencies of Debian's keepalived. They are unpacked into a folder, and not installed.
var packages = []string{"keepalived", "libnl-3-200", "libnl-genl-3-200", "libnftnl11", "libsnmp40", "libsnmp-base", "libpci3", "libwrap0"}

// RootVariable names a folder where the packages are unpacked.
const RootVariable = "ANYCCM_KEEPALIVED_ROOT"

// daemon is the name of the program and of its container.
const daemon = "keepalived"

// NotHere is why keepalived cannot be run on this machine, and what to do about it.
type NotHere string

// Error implements error.
func (n NotHere) Error() string { return string(n) }

// Unpacked returns the folder of the unpacked packages, which go into dir unless RootVariable names one.
func Unpacked(ctx context.Context, dir string) (string, error) {
	root := os.Getenv(RootVariable)
	if root == "" {
		for _, args := range append([][]string{append([]string{"apt-get", "download"}, packages...)}, []string{"sh", "-c", "for p in *.deb; do dpkg -x $p root || exit 1; done"}) {
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", NotHere(fmt.Sprintf("the package %s is not to be had here (%v: %s); set %s to a folder where it is unpacked", daemon, err, out, RootVariable))
			}
		}
		root = filepath.Join(dir, "root")
	}
	if _, err := os.Stat(filepath.Join(root, program)); err != nil {
		return "", NotHere(fmt.Sprintf("%s: %v", RootVariable, err))
	}
	return root, nil
}

// program is keepalived, from the folder of the unpacked packages.
const program = "usr/sbin/" + daemon

// Network are namespaces on one switch: those of nodes, and of a client.
type Network struct {
	ctx  context.Context //nolint:containedctx // it bounds all processes of the network
	end  context.CancelFunc
	dir  string
	root string
	// daemonSet is the DaemonSet whose scripts the nodes run.
	daemonSet *appsv1.DaemonSet
	// first is the process that all namespaces belong to; they go with it.
	first *exec.Cmd
	pid   string
	group sync.WaitGroup

	lock      sync.Mutex
	processes map[string]*process
	logs      map[string]*log
}

// process is a container that runs.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// log collects the containers' output. It may be read while they write.
type log struct {
	lock sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(text []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.Write(text)
}

// Options say what a network is like.
type Options struct {
	// Dir is a temporary folder of the network's own, Root the one with the unpacked packages.
	Dir, Root string
	// DaemonSet is the file with the DaemonSet of keepalived.
	DaemonSet string
	// Names are those of the nodes; their addresses are 10.99.0.11 and so on. The client's is the last of all, see Client.
	Names []string
}

// Client is the name of the client's namespace.
const Client = "cl"

// New makes a network. It is NotHere where namespaces cannot be made. Close it also after other errors.
func New(ctx context.Context, o Options) (*Network, error) {
	ctx, end := context.WithCancel(ctx)
	n := &Network{ctx: ctx, end: end, dir: o.Dir, root: o.Root, processes: map[string]*process{}, logs: map[string]*log{}}
	if err := n.isolate(); err != nil {
		return n, NotHere(fmt.Sprintf("namespaces cannot be made here, which takes root or a kernel that lets users have them: %v", err))
	}
	text, err := os.ReadFile(o.DaemonSet)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &n.daemonSet)
	}
	if err != nil {
		return n, fmt.Errorf("reading the DaemonSet: %w", err)
	}
	if err := n.Run("", "mount", "-t", "tmpfs", "tmpfs", "/run"); err != nil {
		return n, err
	}
	return n, n.wire(append(append([]string{}, o.Names...), Client))
}

// isolate starts the process that the namespaces belong to. It says its number, as the rest of the machine knows it.
func (n *Network) isolate() error {
	n.first = exec.CommandContext(n.ctx, "unshare", "-Urnmpf", "--mount-proc", "--kill-child", "sh", "-c", "echo here; exec sleep infinity")
	var failure bytes.Buffer
	n.first.Stderr = &failure
	out, err := n.first.StdoutPipe()
	if err != nil {
		return err
	}
	if err := n.first.Start(); err != nil {
		return err
	}
	word := make([]byte, len("here\n"))
	if _, err := io.ReadFull(out, word); err != nil {
		return fmt.Errorf("%w: %s", errors.Join(err, n.first.Wait()), failure.String())
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", n.first.Process.Pid, n.first.Process.Pid))
	if n.pid = strings.TrimSpace(string(children)); n.pid == "" {
		return fmt.Errorf("finding the process in the namespaces: %w", errors.Join(err, errors.New("it has no number")))
	}
	return nil
}

// wire makes the namespaces and the switch.
func (n *Network) wire(names []string) error {
	commands := [][]string{}
	add := func(name string, args ...string) { commands = append(commands, append([]string{name}, args...)) }
	for _, name := range append([]string{"sw"}, names...) {
		add("", "ip", "netns", "add", name)
		add(name, "ip", "link", "set", "lo", "up")
	}
	add("sw", "ip", "link", "add", "switch0", "type", "bridge")
	add("sw", "ip", "link", "set", "switch0", "up")
	for i, name := range names {
		add("sw", "ip", "link", "add", "p-"+name, "type", "veth", "peer", "name", "eth0", "netns", name)
		add("sw", "ip", "link", "set", "p-"+name, "master", "switch0", "up")
		add(name, "ip", "address", "add", Address(i)+"/16", "dev", "eth0")
		add(name, "ip", "link", "set", "eth0", "up")
		add(name, "ip", "route", "add", "10.98.0.0/16", "dev", "eth0")
	}
	for _, c := range commands {
		if err := n.Run(c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Address is that of a node, by its place among the names.
func Address(i int) string { return fmt.Sprintf("10.99.0.%d", 11+i) }

// Close ends everything that runs in the namespaces, and removes them.
func (n *Network) Close() {
	n.end()
	if n.first != nil && n.first.Process != nil {
		_ = n.first.Wait() // it was killed, and everything in its namespaces with it
	}
	n.group.Wait()
}

// In is a command in the namespace of a node, or among all of them for "". Its programs find the unpacked packages.
func (n *Network) In(name string, args ...string) *exec.Cmd {
	all := []string{"--target=" + n.pid, "--user", "--net", "--mount", "--pid", "--preserve-credentials"}
	if name != "" {
		all = append(all, "ip", "netns", "exec", name)
	}
	cmd := exec.CommandContext(n.ctx, "nsenter", append(all, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(filepath.Join(n.root, program))+":"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+filepath.Join(n.root, "usr/lib/x86_64-linux-gnu")+":"+filepath.Join(n.root, "lib/x86_64-linux-gnu"))
	return cmd
}

// Run runs a command to its end.
func (n *Network) Run(name string, args ...string) error {
	out, err := n.In(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %q: %w: %s", name, args, err, out)
	}
	return nil
}

// start starts a command that ends with the network, and waits for it.
func (n *Network) start(cmd *exec.Cmd) (chan struct{}, error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %q: %w", cmd.Args, err)
	}
	ended := make(chan struct{})
	n.group.Go(func() {
		defer close(ended)
		_ = cmd.Wait() // it is ended by a signal
	})
	return ended, nil
}

// script is the command of a container of the DaemonSet, with the folders of a node.
func (n *Network) script(node, container string) (string, error) {
	for _, c := range n.daemonSet.Spec.Template.Spec.Containers {
		if c.Name != container || len(c.Command) != 3 || c.Command[0] != "/bin/sh" || c.Command[1] != "-c" {
			continue
		}
		active, err := n.folder(node, "active")
		if err != nil {
			return "", err
		}
		published, err := n.folder(node, "published")
		return strings.NewReplacer("/active", active, "/published", published).Replace(c.Command[2]), err
	}
	return "", fmt.Errorf("the DaemonSet has no container %s that is a script of a shell", container)
}

// folder is a volume of the DaemonSet's pod on a node.
func (n *Network) folder(node, name string) (string, error) {
	path := filepath.Join(n.dir, node, name)
	return path, os.MkdirAll(path, 0o755)
}

// container starts a container of the DaemonSet on a node.
func (n *Network) container(node, name string) error {
	script, err := n.script(node, name)
	if err != nil {
		return err
	}
	cmd := n.In(node, "/bin/sh", "-c", script)
	cmd.Env = append(cmd.Env, "NODE_NAME="+node)
	n.lock.Lock()
	defer n.lock.Unlock()
	title := name + " on " + node
	if n.logs[title] == nil {
		n.logs[title] = &log{}
	}
	cmd.Stdout, cmd.Stderr = n.logs[title], n.logs[title]
	ended, err := n.start(cmd)
	n.processes[title] = &process{cmd: cmd, ended: ended}
	return err
}

// Logs returns the containers' output, by their titles.
func (n *Network) Logs() map[string]string {
	n.lock.Lock()
	defer n.lock.Unlock()
	all := map[string]string{}
	for title, l := range n.logs {
		l.lock.Lock()
		all[title] = l.text.String()
		l.lock.Unlock()
	}
	return all
}

// Start starts keepalived on a node as the DaemonSet does.
func (n *Network) Start(node string) error { return n.container(node, daemon) }

// Help starts what has keepalived read new files on a node.
func (n *Network) Help(node string) error { return n.container(node, "reload") }

// number is a process's, as keepalived on a node has written it into a file.
func (n *Network) number(node, file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(n.dir, node, "active", file))
	if err != nil {
		return "", fmt.Errorf("finding keepalived on %s: %w", node, err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return strconv.Itoa(number), err
}

// Stop ends keepalived on a node as kubelet does.
func (n *Network) Stop(node string) error {
	number, err := n.number(node, "keepalived.pid")
	if err != nil {
		return err
	}
	return errors.Join(n.Run("", "kill", "-TERM", number), n.wait(node))
}

// Kill ends keepalived on a node with its child, so that neither cleans up.
func (n *Network) Kill(node string) error {
	parent, err := n.number(node, "keepalived.pid")
	if err != nil {
		return err
	}
	child, err := n.number(node, "vrrp.pid")
	if err != nil {
		return err
	}
	// The child hears of its parent's end, and would still take the addresses away.
	return errors.Join(n.Run("", "kill", "-STOP", child), n.Run("", "kill", "-9", parent, child), n.wait(node))
}

func (n *Network) wait(node string) error {
	n.lock.Lock()
	one := n.processes[daemon+" on "+node]
	n.lock.Unlock()
	select {
	case <-one.ended:
		return nil
	case <-n.ctx.Done():
		return n.ctx.Err()
	}
}

// Link takes the link of a node away, or gives it back.
func (n *Network) Link(node string, up bool) error {
	return n.Run("sw", "ip", "link", "set", "p-"+node, map[bool]string{true: "up", false: "down"}[up])
}

// Publish gives a node another file, as kubelet does: all of it at once.
func (n *Network) Publish(node, text string) error {
	dir, err := n.folder(node, "published")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "keepalived.conf")
	if err := os.WriteFile(path+".next", []byte(text), 0o644); err != nil {
		return fmt.Errorf("publishing a file: %w", err)
	}
	return os.Rename(path+".next", path)
}

// Check has keepalived judge a file as a node does, and returns what it says.
func (n *Network) Check(node, id, file string) (string, error) {
	out, err := n.In(node, filepath.Join(n.root, program), "-t", "-i", id, "-f", file).CombinedOutput()
	return string(out), err
}

// Version returns the version that keepalived reports.
func (n *Network) Version() (string, error) {
	out, err := n.In("", filepath.Join(n.root, program), "--version").CombinedOutput()
	first, _, _ := strings.Cut(string(out), "\n")
	if err != nil {
		return "", fmt.Errorf("asking keepalived for its version: %w: %s", err, first)
	}
	return first, nil
}

// Addresses are those of a node, as it shows them.
func (n *Network) Addresses(node string) string {
	out, _ := n.In(node, "ip", "address", "show", "dev", "eth0").CombinedOutput()
	return string(out)
}

// pause is the time between two looks.
const pause = 20 * time.Millisecond
