package linode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-resty/resty/v2"
	"github.com/linode/linodego"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// This file has its own types for NodeBalancers: the SDK's first major version lacks their networks.

// nodeBalancer is a NodeBalancer as the API shows it.
type nodeBalancer struct {
	ID                  int      `json:"id"`
	Label               string   `json:"label"`
	Region              string   `json:"region"`
	Type                string   `json:"type"`
	Hostname            string   `json:"hostname"`
	IPv4                string   `json:"ipv4"`
	IPv6                string   `json:"ipv6"`
	Throttle            int      `json:"client_conn_throttle"`
	Tags                []string `json:"tags"`
	Created             string   `json:"created"`
	FrontendAddressType string   `json:"frontend_address_type"`
	FrontendSubnetID    int      `json:"frontend_vpc_subnet_id"`
}

// vpcOptions attaches a NodeBalancer to a subnet of a VPC.
type vpcOptions struct {
	SubnetID            int    `json:"subnet_id"`
	IPv4Range           string `json:"ipv4_range,omitempty"`
	IPv6Range           string `json:"ipv6_range,omitempty"`
	IPv4RangeAutoAssign bool   `json:"ipv4_range_auto_assign,omitempty"`
}

// nodeBalancerRequest creates a NodeBalancer.
type nodeBalancerRequest struct {
	Label        string         `json:"label"`
	Region       string         `json:"region"`
	Type         string         `json:"type"`
	Throttle     int            `json:"client_conn_throttle"`
	Tags         []string       `json:"tags"`
	IPv4         string         `json:"ipv4,omitempty"`
	FirewallID   int            `json:"firewall_id,omitempty"`
	BackendVPCs  []vpcOptions   `json:"backend_vpcs,omitempty"`
	FrontendVPCs []vpcOptions   `json:"frontend_vpcs,omitempty"`
	Configs      []configFields `json:"configs"`
}

// configFields holds the fields of a config that we set.
type configFields struct {
	Port          int        `json:"port"`
	Protocol      string     `json:"protocol"`
	ProxyProtocol string     `json:"proxy_protocol,omitempty"`
	Algorithm     string     `json:"algorithm"`
	Stickiness    string     `json:"stickiness,omitempty"`
	Check         string     `json:"check"`
	CheckInterval int        `json:"check_interval"`
	CheckTimeout  int        `json:"check_timeout"`
	CheckAttempts int        `json:"check_attempts"`
	CheckPassive  bool       `json:"check_passive"`
	CheckPath     string     `json:"check_path,omitempty"`
	CheckBody     string     `json:"check_body,omitempty"`
	UDPCheckPort  int        `json:"udp_check_port,omitempty"`
	Cert          string     `json:"ssl_cert,omitempty"`
	Key           privateKey `json:"ssl_key,omitempty"`
	Nodes         nodeSet    `json:"nodes,omitzero"`
}

// rebuildFields is a config with all its nodes; an empty list removes all.
type rebuildFields struct {
	configFields

	Nodes nodeSet `json:"nodes"`
}

// nodeOptions are the fields of a node that we set. With an ID, a rebuild keeps the existing node.
type nodeOptions struct {
	ID       int    `json:"id,omitempty"`
	Address  string `json:"address"`
	Label    string `json:"label"`
	Weight   int    `json:"weight"`
	Mode     string `json:"mode,omitempty"`
	SubnetID int    `json:"subnet_id,omitempty"`
}

// config is a config as the API shows it, with its nodes.
type config struct {
	linodego.NodeBalancerConfig

	nodes nodeSet
}

// details are the configs of one NodeBalancer.
type details struct {
	nodeBalancerID int
	configs        []config
}

// exchangeJSON makes a call with types that the SDK does not have. isIt checks that the response is about the right object.
func exchangeJSON[T any](ctx context.Context, a *api, doing, method, endpoint string, in any, isIt func(*T) bool) (*T, error) {
	return read(ctx, doing, isIt, func(ctx context.Context) (*T, error) {
		request := a.sdk.R(ctx).SetResult(new(T))
		if in != nil {
			request.SetBody(body(in))
		}
		return result[T](request.Execute(method, endpoint))
	})
}

// result returns the decoded body of a request that was made through the SDK's request path.
func result[T any](r *resty.Response, err error) (*T, error) {
	if err != nil {
		return nil, linodego.NewError(err)
	}
	if r.StatusCode() >= http.StatusBadRequest {
		return nil, linodego.NewError(r)
	}
	v, ok := r.Result().(*T)
	if !ok || v == nil {
		return nil, cloudapi.ErrWrongAnswer
	}
	return v, nil
}

func (a *api) nodeBalancers(ctx context.Context) ([]*nodeBalancer, int, error) {
	return listAll[*nodeBalancer](ctx, a, "NodeBalancers", "nodebalancers", "")
}

// hasID returns a check that a response is about the NodeBalancer with an ID.
func hasID(id int) func(*nodeBalancer) bool {
	return func(nb *nodeBalancer) bool { return nb.ID == id }
}

func (a *api) nodeBalancer(ctx context.Context, id int) (*nodeBalancer, error) {
	return exchangeJSON(ctx, a, fmt.Sprintf("reading NodeBalancer %d", id), http.MethodGet, fmt.Sprintf("nodebalancers/%d", id), nil, hasID(id))
}

// body encodes a request with our own types, whose struct tags the SDK's request path does not know.
func body(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types can always be encoded
	}
	return string(data)
}

func (a *api) createNodeBalancer(ctx context.Context, r *nodeBalancerRequest) (*nodeBalancer, error) {
	return exchangeJSON(ctx, a, "creating NodeBalancer "+r.Label, http.MethodPost, "nodebalancers", r, func(nb *nodeBalancer) bool { return nb.ID != 0 })
}

// nodeBalancerUpdate holds the mutable fields of a NodeBalancer itself.
type nodeBalancerUpdate struct {
	Label    string   `json:"label"`
	Throttle int      `json:"client_conn_throttle"`
	Tags     []string `json:"tags"`
}

func (a *api) updateNodeBalancer(ctx context.Context, id int, u nodeBalancerUpdate) (*nodeBalancer, error) {
	return exchangeJSON(ctx, a, fmt.Sprintf("updating NodeBalancer %d", id), http.MethodPut, fmt.Sprintf("nodebalancers/%d", id), u, hasID(id))
}

func (a *api) deleteNodeBalancer(ctx context.Context, id int) error {
	return do(ctx, fmt.Sprintf("deleting NodeBalancer %d", id), func(ctx context.Context) error { return a.sdk.DeleteNodeBalancer(ctx, id) })
}

// details reads the configs of a NodeBalancer and their nodes.
func (a *api) details(ctx context.Context, id int) (*details, error) {
	configs, _, err := listAll[linodego.NodeBalancerConfig](ctx, a, fmt.Sprintf("configs of NodeBalancer %d", id), fmt.Sprintf("nodebalancers/%d/configs", id), "")
	if err != nil {
		return nil, err
	}
	d := &details{nodeBalancerID: id}
	for _, c := range configs {
		nodes, err := a.nodes(ctx, id, c)
		if err != nil {
			return nil, err
		}
		d.configs = append(d.configs, config{NodeBalancerConfig: c, nodes: nodes})
	}
	return d, nil
}

// nodes reads the nodes of a config.
func (a *api) nodes(ctx context.Context, id int, c linodego.NodeBalancerConfig) (nodeSet, error) {
	what := fmt.Sprintf("nodes of port %d of NodeBalancer %d", c.Port, id)
	nodes, _, err := listAll[linodego.NodeBalancerNode](ctx, a, what, fmt.Sprintf("nodebalancers/%d/configs/%d/nodes", id, c.ID), "")
	return nodeSetOf(nodes, a.rows), err
}

func (a *api) sendConfig(ctx context.Context, doing, method, endpoint string, fields any) (*linodego.NodeBalancerConfig, error) {
	return exchangeJSON(ctx, a, doing, method, endpoint, fields, func(c *linodego.NodeBalancerConfig) bool { return c.ID != 0 })
}

func (a *api) createConfig(ctx context.Context, id int, f configFields) (*linodego.NodeBalancerConfig, error) {
	f.Nodes = nodeSet{} // nodes are not sent here; a rebuild stores them
	return a.sendConfig(ctx, fmt.Sprintf("adding port %d to NodeBalancer %d", f.Port, id), http.MethodPost, fmt.Sprintf("nodebalancers/%d/configs", id), f)
}

func (a *api) updateConfig(ctx context.Context, id, configID int, f configFields) (*linodego.NodeBalancerConfig, error) {
	f.Nodes = nodeSet{}
	return a.sendConfig(ctx, fmt.Sprintf("changing port %d of NodeBalancer %d", f.Port, id), http.MethodPut, fmt.Sprintf("nodebalancers/%d/configs/%d", id, configID), f)
}

func (a *api) rebuildConfig(ctx context.Context, id, configID int, f configFields) (*linodego.NodeBalancerConfig, error) {
	full := rebuildFields{configFields: f, Nodes: f.Nodes}
	full.configFields.Nodes = nodeSet{}
	return a.sendConfig(
		ctx, fmt.Sprintf("rebuilding port %d of NodeBalancer %d", f.Port, id), http.MethodPost,
		fmt.Sprintf("nodebalancers/%d/configs/%d/rebuild", id, configID), full,
	)
}

func (a *api) deleteConfig(ctx context.Context, id, configID, port int) error {
	return do(ctx, fmt.Sprintf("removing port %d from NodeBalancer %d", port, id), func(ctx context.Context) error {
		return a.sdk.DeleteNodeBalancerConfig(ctx, id, configID)
	})
}

func (a *api) addNode(ctx context.Context, id, configID int, n nodeOptions) (*linodego.NodeBalancerNode, error) {
	doing, isIt := fmt.Sprintf("adding node %s to NodeBalancer %d", n.Label, id), func(n *linodego.NodeBalancerNode) bool { return n.ID != 0 }
	return read(ctx, doing, isIt, func(ctx context.Context) (*linodego.NodeBalancerNode, error) {
		return a.sdk.CreateNodeBalancerNode(ctx, id, configID, linodego.NodeBalancerNodeCreateOptions{
			Address: n.Address, Label: n.Label, Weight: n.Weight, Mode: linodego.NodeMode(n.Mode), SubnetID: n.SubnetID,
		})
	})
}

func (a *api) removeNode(ctx context.Context, id, configID int, n nodeOptions) error {
	return do(ctx, fmt.Sprintf("removing node %s from NodeBalancer %d", n.Label, id), func(ctx context.Context) error {
		return a.sdk.DeleteNodeBalancerNode(ctx, id, configID, n.ID)
	})
}
