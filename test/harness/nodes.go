package harness

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// NodeSpec says how a node registers.
type NodeSpec struct {
	Name  string
	Ready bool
	// Address is the address that kubelet finds itself and writes before the cloud is asked; "" if none.
	Address string
	// Initialized is set where kubelet runs without --cloud-provider=external: the Node is complete as it registers.
	Initialized bool
	// ProviderID is kubelet's --provider-id; "" if none.
	ProviderID string
	// Padding makes the node as large as one with many images: bytes of image names in its status.
	Padding int
}

// RegisterNode does what kubelet does with --cloud-provider=external: it creates the Node with the taint, then reports
// its condition.
func (c *Cluster) RegisterNode(ctx context.Context, s NodeSpec) error {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Labels: map[string]string{v1.LabelHostname: s.Name, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64"},
		},
		Spec:   v1.NodeSpec{ProviderID: s.ProviderID},
		Status: nodeStatus(s),
	}
	if !s.Initialized {
		node.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: v1.TaintEffectNoSchedule}}
	}
	if _, err := c.Kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("registering node %s: %w", s.Name, err)
	}
	return nil
}

func nodeStatus(s NodeSpec) v1.NodeStatus {
	status := v1.NodeStatus{
		Addresses:  []v1.NodeAddress{{Type: v1.NodeHostName, Address: s.Name}},
		Conditions: []v1.NodeCondition{readyCondition(s.Ready)},
		Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("4Gi"),
			v1.ResourcePods: resource.MustParse("110"),
		},
		Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("4Gi"),
			v1.ResourcePods: resource.MustParse("110"),
		},
		NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64"},
	}
	if s.Address != "" {
		status.Addresses = append([]v1.NodeAddress{{Type: v1.NodeInternalIP, Address: s.Address}}, status.Addresses...)
	}
	const name = 180
	for i := range s.Padding / name {
		status.Images = append(status.Images, v1.ContainerImage{SizeBytes: 1 << 20, Names: []string{
			fmt.Sprintf("registry.example/%s/image-%d@sha256:%064d", strings.Repeat("team", 20), i, i),
		}})
	}
	return status
}

func readyCondition(ready bool) v1.NodeCondition {
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	now := metav1.Now()
	return v1.NodeCondition{Type: v1.NodeReady, Status: status, Reason: "Kubelet", LastHeartbeatTime: now, LastTransitionTime: now}
}

// RegisterNodes registers nodes node-<from> to node-<from+n-1>, several at a time.
func (c *Cluster) RegisterNodes(ctx context.Context, from, n int, s NodeSpec) error {
	const workers = 16
	numbers := make(chan int)
	failures := make(chan error, workers)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range numbers {
				spec := s
				spec.Name = "node-" + strconv.Itoa(i)
				if err := c.RegisterNode(ctx, spec); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	var err error
feeding:
	for i := range n {
		select {
		case numbers <- from + i:
		case err = <-failures:
			break feeding
		}
	}
	close(numbers)
	group.Wait()
	close(failures)
	return errors.Join(err, <-failures)
}

// JoinNodes registers ready nodes for the instances node-1 to node-n and waits until they are initialised. Without a cloud outside of the
// cluster nobody initialises them: they are from the start.
func (c *Cluster) JoinNodes(ctx context.Context, n int, within time.Duration) error {
	if !c.Cloud.InCluster() {
		if err := c.RegisterNodes(ctx, 1, n, NodeSpec{Ready: true}); err != nil {
			return err
		}
		return c.WaitInitialized(ctx, n, within)
	}
	for i := range n {
		spec := NodeSpec{Name: fmt.Sprintf("node-%d", i+1), Ready: true, Initialized: true, Address: fmt.Sprintf("10.0.0.%d", i+1)}
		if err := c.RegisterNode(ctx, spec); err != nil {
			return err
		}
	}
	return nil
}

// SetReady changes a node's Ready condition, as kubelet and the node lifecycle controller do.
func (c *Cluster) SetReady(ctx context.Context, name string, ready bool) error {
	status := "False"
	if ready {
		status = "True"
	}
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Kubelet","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		status, time.Now().UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
	if _, err := c.Kube.CoreV1().Nodes().Patch(
		ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status",
	); err != nil {
		return fmt.Errorf("changing the condition of node %s: %w", name, err)
	}
	return nil
}

// Uninitialized reports whether a node still waits for its cloud controller.
func Uninitialized(n *v1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
}

// Initialized reports whether a node has everything that it gets from its cloud.
func Initialized(n *v1.Node) bool {
	return !Uninitialized(n) && n.Spec.ProviderID != "" && n.Labels[v1.LabelInstanceTypeStable] != "" &&
		slices.ContainsFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type == v1.NodeInternalIP })
}

// WaitInitialized waits until n nodes have everything from their cloud.
func (c *Cluster) WaitInitialized(ctx context.Context, n int, within time.Duration) error {
	return Eventually(ctx, within, fmt.Sprintf("%d initialised nodes", n), func(ctx context.Context) error {
		list, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if Initialized(&list.Items[i]) {
				ready++
			}
		}
		if ready < n {
			return fmt.Errorf("%d of %d", ready, n)
		}
		return nil
	})
}

// CreateService creates a Service of type LoadBalancer with one port.
func (c *Cluster) CreateService(ctx context.Context, name string, annotations map[string]string) (*v1.Service, error) {
	s, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating Service %s: %w", name, err)
	}
	return s, nil
}

// WaitServed waits until a Service has an address, and returns it, or else its name.
func (c *Cluster) WaitServed(ctx context.Context, name string, within time.Duration) (string, error) {
	address := ""
	return address, Eventually(ctx, within, "an address of Service "+name, func(ctx context.Context) error {
		s, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return errors.New("its status is empty")
		}
		address = cmp.Or(s.Status.LoadBalancer.Ingress[0].IP, s.Status.LoadBalancer.Ingress[0].Hostname) // Linode shows both
		return nil
	})
}

// WaitLeading waits until the program holds the lease and its controllers run.
func (m *CCM) WaitLeading(ctx context.Context, within time.Duration) error {
	return Eventually(ctx, within, "leadership", func(ctx context.Context) error {
		text, err := m.Get(ctx, "/healthz?verbose")
		if err == nil && !strings.Contains(text, "cloud-node-controller") && !strings.Contains(text, "service-lb-controller") {
			err = errors.New("no controller runs yet")
		}
		return err
	})
}

// insecure: the program's certificate is signed by itself; both ends are on this machine.
var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see above

// errEnded: nobody starts the program again, so that it will never answer.
var errEnded = errors.New("the program has ended")

// Get reads a path of the program's own server, such as /metrics.
func (m *CCM) Get(ctx context.Context, path string) (string, error) {
	text, err := m.get(ctx, path)
	if err == nil {
		return text, nil
	}
	select {
	case <-m.Done(): // whoever answered
		return "", fmt.Errorf("asking the program: %w with status %d and said last:\n%s", errEnded, m.ExitCode(), m.Tail(10))
	default:
		return "", fmt.Errorf("asking the program: %w", err)
	}
}

func (m *CCM) get(ctx context.Context, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL+path, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+m.token)
	resp, err := insecure.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP %d: %s", resp.StatusCode, body)
	}
	return string(body), err
}

// CloudAPIStatus returns what /configz says about the cloud's API: empty while it works.
func (m *CCM) CloudAPIStatus(ctx context.Context) (reason string, err error) {
	text, err := m.Get(ctx, "/configz")
	if err != nil {
		return "", err
	}
	var page struct {
		AnyCCM struct {
			Usable bool   `json:"usable"`
			Reason string `json:"reason"`
		} `json:"anyccm"`
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return "", fmt.Errorf("reading /configz: %w", err)
	}
	if !page.AnyCCM.Usable && page.AnyCCM.Reason == "" {
		return "not checked yet", nil
	}
	return page.AnyCCM.Reason, nil
}

// Metric sums the samples of a metric whose line contains all the given labels.
func (m *CCM) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	text, err := m.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		space := strings.LastIndexByte(line, ' ') // labels may hold spaces too
		if space < 0 {
			continue
		}
		series, value := line[:space], line[space+1:]
		if bare, _, _ := strings.Cut(series, "{"); bare != name || slices.ContainsFunc(
			labels, func(l string) bool { return !strings.Contains(series, l) },
		) {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			sum += v
		}
	}
	return sum, nil
}
