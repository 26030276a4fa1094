// Package harness puts a cluster together from processes: a real kube-apiserver, a simulated cloud, and the built
// program with the rights of its ServiceAccount. The end-to-end tests, the demo and the benchmarks share it.
package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/build/gobuild"
	"github.com/anyccm/cloud-controller-manager/test/controlplane"
)

// account is the ServiceAccount that the program runs as.
const account = "cloud-controller-manager"

// binariesVariable names a folder with the built programs; they are built if it is not set.
const binariesVariable = "ANYCCM_BIN"

// startTimeout bounds waits at the start of a cluster, which usually take a second, on a machine that is busy.
const startTimeout = 3 * time.Minute

// AnyProvider is the cloud of tests and demonstrations that need one and do not care which.
const AnyProvider = "digitalocean"

// Programs are the paths of the built programs.
type Programs struct {
	CCM, Cloudsim, Helm string
	// Kubectl is there for the tests alone; the demo does without.
	Kubectl string
}

// Build returns the programs, built into dir unless ANYCCM_BIN says where they are.
func Build(ctx context.Context, dir string) (Programs, error) {
	if ready := os.Getenv(binariesVariable); ready != "" {
		dir = ready
	}
	p := Programs{
		CCM: filepath.Join(dir, "cloud-controller-manager"), Cloudsim: filepath.Join(dir, "cloudsim"),
		Helm: filepath.Join(dir, "helm"), Kubectl: filepath.Join(dir, "kubectl"),
	}
	if os.Getenv(binariesVariable) != "" {
		for _, path := range []string{p.CCM, p.Cloudsim, p.Helm} {
			if _, err := os.Stat(path); err != nil {
				return p, fmt.Errorf("%s: %w", binariesVariable, err)
			}
		}
		return p, nil
	}
	for path, pkg := range map[string]string{p.CCM: "cmd/cloud-controller-manager", p.Cloudsim: "cmd/cloudsim"} {
		if err := BuildProgram(ctx, path, pkg); err != nil {
			return p, err
		}
	}
	return p, nil
}

// BuildProgram builds a package of this module with the flags of the product.
func BuildProgram(ctx context.Context, path, pkg string) error {
	return gobuild.Build{
		Name: pkg, Env: gobuild.Env(), Flags: gobuild.Flags(nil, nil), Output: path, Packages: []string{"github.com/anyccm/cloud-controller-manager/" + pkg},
	}.Run(ctx, os.Stderr)
}

// Options say what a cluster is like.
type Options struct {
	// Dir holds everything that the cluster writes.
	Dir string
	// Programs under test.
	Programs Programs
	// Binaries is the folder with kube-apiserver.
	Binaries string
	// Etcd holds the cluster's objects, under a prefix of its own.
	Etcd *controlplane.Etcd
	// Provider is the cloud.
	Provider string
	// Outside is a cloud that runs already, in place of a simulated one; nil starts a simulated one.
	Outside *Outside
	// Cloud are further arguments of the simulated cloud.
	Cloud []string
	// CloudConfig is added to the configuration file of programs on clouds that have one.
	CloudConfig string
	// NoAudit spares the API server the log of requests, for benchmarks.
	NoAudit bool
	// Pooled borrows an API server of the stage, which is emptied and lent again when the cluster is closed. Others have one of their own.
	Pooled bool

	// server runs already, in place of one of the cluster's own.
	server *controlplane.APIServer
	// closed is called when the cluster is closed, if it is set; more than once if the cluster is.
	closed func()
}

// Outside says how the program reaches a cloud that nobody simulates.
type Outside struct {
	// Env are variables of the program, CloudConfig its configuration file.
	Env         map[string]string
	CloudConfig string
}

// Cluster is a running cluster without any controller.
type Cluster struct {
	Options
	API  *controlplane.APIServer
	Kube kubernetes.Interface
	// Cloud is nil where the cloud runs outside.
	Cloud *Cloud
	// Kubeconfig is the administrator's.
	Kubeconfig string

	processes []*controlplane.Process
	managers  int
	rendered  map[string][]byte
}

// Start starts a cluster. Close it also after an error.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{Options: o, Kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("making the cluster's folder: %w", err)
	}
	var err error
	if c.Outside == nil {
		if c.Cloud, err = c.startCloud(ctx); err != nil {
			return err
		}
	}
	if c.API = c.server; c.API == nil {
		if c.API, err = startAPIServer(
			ctx, c.Binaries, filepath.Join(c.Dir, "apiserver"), c.Etcd, "/"+filepath.Base(c.Dir), !c.NoAudit,
		); err != nil {
			return err
		}
	}
	if c.Kube, err = c.API.Client(); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := c.API.WriteKubeconfig(c.Kubeconfig, c.API.Token); err != nil {
		return err
	}
	// Nobody runs the pods of the chart: StartCCM does.
	_, err = c.Install(ctx, chartName, nil)
	return err
}

// startAPIServer starts an API server and waits for what it publishes shortly after it is ready.
func startAPIServer(
	ctx context.Context, binaries, dir string, etcd *controlplane.Etcd, prefix string, audit bool,
) (*controlplane.APIServer, error) {
	api, err := controlplane.StartAPIServer(ctx, binaries, dir, etcd, prefix, audit)
	if err != nil {
		return nil, err
	}
	kube, err := api.Client()
	if err == nil {
		err = Eventually(ctx, startTimeout, "the API server's own objects", func(ctx context.Context) error {
			if _, err := kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{}); err != nil {
				return err
			}
			if _, err := kube.RbacV1().ClusterRoles().Get(ctx, "system:auth-delegator", metav1.GetOptions{}); err != nil {
				return err
			}
			_, err := kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
			return err
		})
	}
	if err != nil {
		api.Stop(0)
		return nil, err
	}
	return api, nil
}

// Install installs or upgrades a release of the chart with further values, and returns its objects.
func (c *Cluster) Install(ctx context.Context, release string, more Values) ([]*unstructured.Unstructured, error) {
	values, err := c.ChartValues(ctx)
	if err != nil {
		return nil, err
	}
	for path, value := range more {
		values.Set(path, value)
	}
	objects, err := c.Render(ctx, release, values)
	if err != nil {
		return nil, err
	}
	return objects, c.Apply(ctx, objects)
}

// AllowLease lets the program use a lease of another name, as the chart does for a second release.
func (c *Cluster) AllowLease(ctx context.Context, name string) error {
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "lease-" + name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{name},
			Verbs: []string{"get", "update"},
		}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: account}},
	}
	if _, err := c.Kube.RbacV1().Roles(role.Namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("allowing the lease %s: %w", name, err)
	}
	if _, err := c.Kube.RbacV1().RoleBindings(binding.Namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("allowing the lease %s: %w", name, err)
	}
	return nil
}

// Close ends every process of the cluster. Nobody uses its objects any more, so the API server need not take leave of those that watch it.
func (c *Cluster) Close() {
	c.StopPrograms()
	if c.API != nil && c.server == nil {
		c.API.Stop(0)
	}
	if c.closed != nil {
		c.closed()
	}
}

// StopPrograms ends every process of the cluster but the API server.
func (c *Cluster) StopPrograms() {
	for _, v := range slices.Backward(c.processes) {
		v.Stop(3 * time.Second)
	}
}

// CCM is a running cloud controller manager.
type CCM struct {
	*controlplane.Process
	// Port is that of health checks and metrics.
	Port int
	// URL is the address of health checks and metrics.
	URL   string
	token string
}

// StartCCM starts the program as the chart would, and returns at once. Arguments and environment come after the chart's
// and so win over them; an empty value takes a variable away.
func (c *Cluster) StartCCM(ctx context.Context, args []string, env map[string]string) (*CCM, error) {
	return c.StartOther(ctx, c.Programs.CCM, args, env)
}

// StartOther starts another cloud controller manager in the same way.
func (c *Cluster) StartOther(ctx context.Context, program string, args []string, env map[string]string) (*CCM, error) {
	return c.StartRelease(ctx, chartName, program, nil, args, env)
}

// StartRelease starts a release of the chart with further values: with its arguments, environment and files, as its
// ServiceAccount. Besides them it is told where the API server is, because the program is in no pod, and to keep its lease for longer.
func (c *Cluster) StartRelease(
	ctx context.Context, release, program string, more Values, args []string, env map[string]string,
) (*CCM, error) {
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		return nil, err
	}
	values, err := c.ChartValues(ctx)
	if err != nil {
		return nil, err
	}
	for path, value := range more {
		values.Set(path, value)
	}
	objects, err := c.Render(ctx, release, values)
	if err != nil {
		return nil, err
	}
	args = append([]string{fmt.Sprintf("--secure-port=%d", ports[0])}, args...)
	return c.StartObjects(ctx, objects, program, ports[0], args, env)
}

// StartObjects starts what is installed: the workload among the objects, which serves metrics on the given port.
func (c *Cluster) StartObjects(
	ctx context.Context, objects []*unstructured.Unstructured, program string, port int, args []string, env map[string]string,
) (*CCM, error) {
	c.managers++
	name := fmt.Sprintf("ccm-%d", c.managers)
	rendered, err := workload(objects, filepath.Join(c.Dir, name+".files"))
	if err != nil {
		return nil, err
	}
	hour := int64(3600)
	token, err := c.Kube.CoreV1().ServiceAccounts(rendered.namespace).CreateToken(ctx, rendered.account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token: %w", err)
	}
	kubeconfig := filepath.Join(c.Dir, name+".kubeconfig")
	if err := c.API.WriteKubeconfig(kubeconfig, token.Status.Token); err != nil {
		return nil, err
	}
	var list []string
	for k, v := range overlaid(rendered.env, env) {
		list = append(list, k+"="+v)
	}
	where := []string{"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig}
	if program == c.Programs.CCM {
		where = append(where, keepsLease...)
	} else { // it knows controllers of its own
		rendered.args = slices.DeleteFunc(rendered.args, func(a string) bool { return strings.HasPrefix(a, "--controllers=") })
	}
	p, err := controlplane.Start(name, c.Dir, program, slices.Concat(rendered.args, where, args), list)
	if err != nil {
		return nil, err
	}
	c.processes = append(c.processes, p)
	return &CCM{Process: p, Port: port, URL: fmt.Sprintf("https://127.0.0.1:%d", port), token: c.API.Token}, nil
}

// keepsLease: an API server that a busy machine slows down must not cost the program its lease, for it would end, and nobody starts it
// again as a kubelet would.
var keepsLease = []string{"--leader-elect-lease-duration=2m", "--leader-elect-renew-deadline=90s"}

// overlaid puts one environment over another: empty values take variables away, and a credential takes the file away that
// the chart names for it.
func overlaid(base, over map[string]string) map[string]string {
	all := maps.Clone(base)
	for name := range over {
		if _, both := over[name+"_FILE"]; !both {
			delete(all, name+"_FILE")
		}
	}
	maps.Copy(all, over)
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// Eventually calls check until it succeeds, or until the failure that it reports has stayed the same for the given time: on a
// busy machine what counts on goes on for longer, and what stands still fails as early. If the program that is asked has ended, it fails at
// once. The last failure is part of the error.
func Eventually(ctx context.Context, within time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxPatience*within)
	defer cancel()
	still := time.AfterFunc(within, cancel)
	defer still.Stop()
	began, last := time.Now(), errors.New("not asked yet")
	for {
		asked := time.Now()
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			if err.Error() != last.Error() {
				still.Reset(within)
			}
			last = err
		}
		if errors.Is(err, errEnded) {
			cancel()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", time.Since(began).Round(time.Second), what, last)
		// A check that is expensive, such as a listing of a thousand nodes, must not slow down what it waits for.
		case <-time.After(max(100*time.Millisecond, 5*time.Since(asked))):
		}
	}
}

// maxPatience is how many times the given time Eventually waits at most for something that keeps making progress.
const maxPatience = 5
