package xcloud

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

// callPrice limits the calls for nodes that stay down.
const callPrice = time.Second

// addressMaxAge is how old the addresses of instances may be that become backends.
const addressMaxAge = 30 * time.Second

const indexName = "name"

// instance holds the fields of an instance as the API shows them.
type instance struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Type      string `json:"type"`
	Region    string `json:"region"`
	Status    string `json:"status"`
	PrivateIP string `json:"private_ip"`
	PublicIP  string `json:"public_ip"`
}

// instances reads instances and describes their nodes.
type instances struct {
	*nodes.Instances[string, instance]
	nodes *nodecount.Counter
}

func newInstances(a *api) *instances {
	i := &instances{nodes: &nodecount.Counter{}}
	i.Instances = nodes.New(nodes.Cloud[string, instance]{
		Kind: "instance", Nodes: i.nodes, Price: callPrice,
		Inventory: inventory.New(inventory.Source[string, instance]{
			Kind: "instance", ID: func(i instance) string { return i.ID }, List: a.instances, Get: a.instance,
			Indexes: map[string]func(instance) []string{indexName: func(i instance) []string { return []string{strings.ToLower(i.Name)} }},
		}),
		Form: providerIDPrefix + "<instance ID>", Parse: parseProviderID, Print: func(i instance) string { return providerIDPrefix + i.ID },
		Search: search, State: instance.state, Metadata: describe, Verify: verify,
	})
	return i
}

func (a *api) instances(ctx context.Context) ([]instance, int, error) {
	return list[instance](ctx, a, "instances", "/v1/instances", url.Values{})
}

func (a *api) instance(ctx context.Context, id string) (i instance, err error) {
	err = a.call(ctx, "reading instance "+id, http.MethodGet, "/v1/instances/"+url.PathEscape(id), nil, &i)
	if err == nil && i.ID != id {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "reading instance " + id, Message: "the answer is about another instance"}
	}
	return i, err
}

// cloudNodes returns the nodes of this cloud.
func cloudNodes(nodes []*v1.Node) []*v1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *v1.Node) bool { return !strings.HasPrefix(n.Spec.ProviderID, providerIDPrefix) })
}

// attest returns the nodes of this cloud that have an instance, with its addresses, because a kubelet can write any on its Node.
func (i *instances) attest(ctx context.Context, list []*v1.Node) ([]*v1.Node, error) {
	return i.WithAddresses(ctx, cloudNodes(list), addressMaxAge)
}

// search finds the instance of a node without a provider ID. Kubelets register in small letters.
func search(_ context.Context, node *v1.Node) (nodes.Search[string, instance], error) {
	return nodes.Search[string, instance]{Keys: []nodes.Key[instance]{{Index: indexName, Value: strings.ToLower(node.Name)}}}, nil
}

// state maps a status of the cloud to a node state.
func (i instance) state() (nodes.State, error) {
	if i.Status == "stopped" {
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

// describe returns the node's description from its instance.
func describe(_ context.Context, _ *v1.Node, i instance, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	if i.PrivateIP == "" {
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("instance %s cannot become a node: it has no private address yet", i.ID)}
	}
	addresses := []v1.NodeAddress{{Type: v1.NodeHostName, Address: i.Name}, {Type: v1.NodeInternalIP, Address: i.PrivateIP}}
	if i.PublicIP != "" {
		addresses = append(addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: i.PublicIP})
	}
	return &cloudprovider.InstanceMetadata{InstanceType: i.Type, Region: i.Region, NodeAddresses: addresses}, nil
}

// verify compares names: control of a kubelet is not enough to rename an instance.
func verify(_ context.Context, node *v1.Node, i instance) (why string, err error) {
	if !strings.EqualFold(i.Name, node.Name) {
		return fmt.Sprintf("the instance %s is named %q", i.ID, i.Name), nil
	}
	return "", nil
}

var instanceID = regexp.MustCompile(`^[a-z0-9]{1,40}$`)

// parseProviderID returns the instance ID of a provider ID.
func parseProviderID(text string) (string, error) {
	id, ok := strings.CutPrefix(text, providerIDPrefix)
	if !ok || !instanceID.MatchString(id) {
		return "", fmt.Errorf("provider ID %q is not of the form %s<instance ID>", text, providerIDPrefix)
	}
	return id, nil
}
