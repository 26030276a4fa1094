package ibm

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// States of load balancers. In any other state, including unknown ones, the cloud is working on them.
const (
	stateActive = "active"
	stateFailed = "failed"
	// stateBusy is the state of a load balancer after one of our writes.
	stateBusy     = "update_pending"
	stateDeleting = "delete_pending"
	// stateMaintenance is the state during the cloud's own work; operatingOnline is the operating status of a working load balancer.
	stateMaintenance = "maintenance_pending"
	operatingOnline  = "online"

	familyNetwork  = "network"
	profileNetwork = "network-fixed"
)

// loadBalancer holds the fields of a load balancer that we use.
type loadBalancer struct {
	ID           string      `json:"id"`
	Name         string      `json:"name"`
	Hostname     string      `json:"hostname"`
	Public       bool        `json:"is_public"`
	Operating    string      `json:"operating_status"`
	Provisioning string      `json:"provisioning_status"`
	Profile      profile     `json:"profile"`
	Subnets      []reference `json:"subnets"`
	Listeners    []reference `json:"listeners"`
	Pools        []reference `json:"pools"`
	PublicIPs    []address   `json:"public_ips"`
	PrivateIPs   []address   `json:"private_ips"`
	Groups       []reference `json:"security_groups"`
	Created      time.Time   `json:"created_at"`
	// GroupsSupported is false for network load balancers from before October 2023.
	GroupsSupported *bool `json:"security_groups_supported"`
	// DNS is the private zone that registers it; nil if there is none.
	DNS *dnsRequest `json:"dns"`
}

type profile struct {
	Name   string `json:"name"`
	Family string `json:"family"`
}

func (lb *loadBalancer) isNetwork() bool { return lb.Profile.Family == familyNetwork }

// isBusy reports whether the cloud is working on it, and refuses other changes.
func (lb *loadBalancer) isBusy() bool {
	return lb.Provisioning != stateActive && lb.Provisioning != stateFailed
}

// ip returns the address of a network load balancer, which never changes.
func (lb *loadBalancer) ip() string {
	list := lb.PrivateIPs
	if lb.Public {
		list = lb.PublicIPs
	}
	if len(list) == 0 || list[0].Address == notYetChosen {
		return ""
	}
	return list[0].Address
}

// target is a member's destination: an address for an application load balancer, an instance for a network load balancer.
type target struct {
	Address string `json:"address,omitempty"`
	ID      string `json:"id,omitempty"`
}

type member struct {
	Port   int    `json:"port"`
	Target target `json:"target"`
}

// monitor is the health check of a pool.
type monitor struct {
	Delay   int    `json:"delay"`
	Retries int    `json:"max_retries"`
	Port    int    `json:"port,omitempty"`
	Timeout int    `json:"timeout"`
	Type    string `json:"type"`
	Path    string `json:"url_path,omitempty"`
}

// pool is a pool in requests and responses; Members come from separate reads.
type pool struct {
	ID        string   `json:"id,omitempty"`
	Algorithm string   `json:"algorithm,omitempty"`
	Monitor   *monitor `json:"health_monitor,omitempty"`
	Members   []member `json:"members,omitempty"`
	Name      string   `json:"name,omitempty"`
	Protocol  string   `json:"protocol,omitempty"`
	Proxy     string   `json:"proxy_protocol,omitempty"`
}

// listener is a listener in requests and responses.
type listener struct {
	ID       string     `json:"id,omitempty"`
	Limit    int        `json:"connection_limit,omitempty"`
	Pool     *reference `json:"default_pool,omitempty"`
	Idle     int        `json:"idle_connection_timeout,omitempty"`
	Port     int        `json:"port,omitempty"`
	PortMin  int        `json:"port_min,omitempty"`
	PortMax  int        `json:"port_max,omitempty"`
	Protocol string     `json:"protocol,omitempty"`
}

// dnsRequest names the zone that registers a private load balancer, in requests and responses.
type dnsRequest struct {
	Instance struct {
		CRN string `json:"crn"`
	} `json:"instance"`
	Zone reference `json:"zone"`
}

// creation is the request for a load balancer with all its parts.
type creation struct {
	Public        bool        `json:"is_public"`
	Listeners     []listener  `json:"listeners"`
	Name          string      `json:"name"`
	Pools         []pool      `json:"pools"`
	Profile       *reference  `json:"profile,omitempty"`
	ResourceGroup reference   `json:"resource_group"`
	Groups        []reference `json:"security_groups,omitempty"`
	Subnets       []reference `json:"subnets"`
	DNS           *dnsRequest `json:"dns,omitempty"`
}

// parts are the listeners and pools of a load balancer.
type parts struct {
	id        string
	listeners []listener
	pools     []pool
}

// summary summarizes these listeners and pools in the same form as shownParts, so that both can be compared.
func (d *parts) summary() string {
	lb := &loadBalancer{}
	d.copyTo(lb)
	return lb.shownParts()
}

// copyTo copies these listeners and pools to the load balancer's own references.
func (d *parts) copyTo(lb *loadBalancer) {
	lb.Listeners, lb.Pools = nil, nil
	for _, l := range d.listeners {
		lb.Listeners = append(lb.Listeners, reference{ID: l.ID})
	}
	for _, p := range d.pools {
		lb.Pools = append(lb.Pools, reference{ID: p.ID, Name: p.Name})
	}
}

// clone returns a copy that shares no mutable parts.
func (d *parts) clone() *parts {
	if d == nil {
		return nil
	}
	return &parts{id: d.id, listeners: slices.Clone(d.listeners), pools: slices.Clone(d.pools)}
}

// shownParts summarizes the listeners and pools named in the load balancer itself; it changes when one is added, removed or renamed.
func (lb *loadBalancer) shownParts() string {
	var parts []string
	for _, l := range lb.Listeners {
		parts = append(parts, "l "+l.ID)
	}
	for _, p := range lb.Pools {
		parts = append(parts, "p "+p.ID+" "+p.Name)
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ",")
}

// sameAs reports whether two reads show equal mutable fields.
func (lb *loadBalancer) sameAs(listed *loadBalancer) bool {
	return lb.shownParts() == listed.shownParts() &&
		services.SameSet(idsOf(lb.Subnets), idsOf(listed.Subnets)) && services.SameSet(idsOf(lb.Groups), idsOf(listed.Groups))
}

// reader reads the load balancers of the account and region, and their parts.
type reader struct {
	api *api
	// instances tell whether the credential still sees the cluster's VPC: if not, missing objects may exist.
	instances *instances

	loadBalancers *inventory.Inventory[string, *loadBalancer]
	parts         *inventory.Inventory[string, *parts]
	// groups reads the security groups of the VPC.
	groups *inventory.Inventory[string, securityGroup]
	room   *waiting.Room[string, *loadBalancer]
	// resourceGroupID is the ID of the resource group.
	resourceGroupID atomic.Value
}

// pace is the polling of a load balancer that the cloud works on, which takes about 30 s for each write.
func pace() waiting.Pace { return waiting.Pace{Least: 3 * time.Second, Most: 10 * time.Second} }

func newReader(a *api, i *instances) *reader {
	b := &reader{api: a, instances: i}
	b.loadBalancers = inventory.New(inventory.Source[string, *loadBalancer]{
		Kind: "load balancer", ID: func(lb *loadBalancer) string { return lb.ID }, List: a.loadBalancers, Get: b.loadBalancer, Wrote: (*loadBalancer).sameAs,
		Indexes: map[string]func(*loadBalancer) []string{indexName: func(lb *loadBalancer) []string { return []string{lb.Name} }},
	})
	b.parts = inventory.New(inventory.Source[string, *parts]{
		Kind: "load balancer detail", ID: func(d *parts) string { return d.id }, Get: b.readParts,
	})
	b.groups = inventory.New(inventory.Source[string, securityGroup]{
		Kind: "security group", ID: func(g securityGroup) string { return g.ID }, List: a.securityGroups, Get: b.securityGroup,
		Wrote: func(known, listed securityGroup) bool {
			return services.SameSet(known.Rules, listed.Rules) // including the IDs, which are needed to remove rules
		},
		Indexes: map[string]func(securityGroup) []string{indexName: func(g securityGroup) []string { return []string{g.Name} }},
	})
	b.room = waiting.New(b.loadBalancers.Look, pace())
	return b
}

func (a *api) loadBalancers(ctx context.Context) ([]*loadBalancer, int, error) {
	return list[*loadBalancer](ctx, a, "load_balancers", "/load_balancers", url.Values{})
}

// read reads an object of the VPC. It counts as gone only if the credential still sees the VPC.
func (b *reader) read(ctx context.Context, what, path string, out any) error {
	err := b.api.call(ctx, request{what: what, method: http.MethodGet, path: path}, out)
	if errors.Is(err, cloudapi.ErrNotFound) {
		if doubt := b.instances.seesVPC(ctx, proofMaxAge); doubt != nil {
			return cloudapi.Unclear(what, "it is not found, which does not prove that it is gone: %s", doubt)
		}
	}
	return err
}

// loadBalancer reads a load balancer.
func (b *reader) loadBalancer(ctx context.Context, id string) (*loadBalancer, error) {
	lb, what := &loadBalancer{}, "reading load balancer "+id
	err := b.read(ctx, what, "/load_balancers/"+url.PathEscape(id), lb)
	if err == nil && (lb.ID != id || lb.Provisioning == "") {
		err = cloudapi.Unclear(what, "the answer is about another load balancer")
	}
	return lb, err
}

// readParts reads the listeners and pools of a load balancer, with the members of each pool.
func (b *reader) readParts(ctx context.Context, id string) (*parts, error) {
	path := "/load_balancers/" + url.PathEscape(id)
	d := &parts{id: id}
	err := waiting.Together(
		func() (err error) {
			d.listeners, err = readUnpaged[listener](ctx, b.api, "listing listeners of load balancer "+id, path+"/listeners", "listeners")
			return err
		},
		func() (err error) {
			d.pools, err = readUnpaged[pool](ctx, b.api, "listing pools of load balancer "+id, path+"/pools", "pools")
			return err
		},
	)
	if err != nil {
		return nil, err
	}
	var reads []func() error
	for n := range d.pools {
		reads = append(reads, func() (err error) {
			p := &d.pools[n]
			p.Members, err = readUnpaged[member](ctx, b.api, "listing members of pool "+p.Name, path+"/pools/"+url.PathEscape(p.ID)+"/members", "members")
			return err
		})
	}
	return d, waiting.Together(reads...)
}

// maxDisagreements bounds how often a load balancer and its listings are read again while they differ.
const maxDisagreements = 2

// partsOf returns listeners, pools and members, read again if the load balancer names other ones. If both still differ after that, somebody
// is changing it or a response is outdated, so the caller retries later.
func (b *reader) partsOf(ctx context.Context, lb *loadBalancer) (*loadBalancer, *parts, error) {
	d, err := b.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: partsMaxAge})
	for try := 0; err == nil && d.summary() != lb.shownParts(); try++ {
		if try == maxDisagreements {
			return lb, nil, cloudproviderapi.NewRetryError("the load balancer "+lb.Name+" and its listings show different listeners or pools", lookAgain)
		}
		if d, err = b.parts.Get(ctx, lb.ID, inventory.Query{}); err != nil || d.summary() == lb.shownParts() {
			break
		}
		now, readErr := b.loadBalancers.Get(ctx, lb.ID, inventory.Query{})
		switch {
		case errors.Is(readErr, cloudapi.ErrNotFound):
			return lb, nil, services.ErrGone
		case readErr != nil:
			return lb, nil, readErr
		}
		lb = now
	}
	return lb, d, cloudapi.NotAbsence(err)
}

// readUnpaged reads a listing without pages.
func readUnpaged[T any](ctx context.Context, a *api, what, path, key string) ([]T, error) {
	var raw json.RawMessage
	if err := a.call(ctx, request{what: what, method: http.MethodGet, path: path}, &raw); err != nil {
		return nil, err
	}
	items, _, err := readPage[T](what, key, raw)
	return items, err
}

// resourceGroup returns the ID of the resource group for new load balancers, which never changes.
func (b *reader) resourceGroup(ctx context.Context) (string, error) {
	name := b.api.config.ResourceGroup
	if groupID.MatchString(name) {
		return name, nil
	}
	if known, is := b.resourceGroupID.Load().(string); is {
		return known, nil
	}
	const what = "looking for the resource group"
	var said struct {
		Resources []reference `json:"resources"`
	}
	query := url.Values{"account_id": {b.api.config.Account}, "name": {name}}
	err := b.api.send(ctx, request{what: what, method: http.MethodGet}, b.api.endpoints.rm+"/v2/resource_groups?"+query.Encode(), &said)
	if err != nil {
		return "", cloudapi.NotAbsence(err)
	}
	if len(said.Resources) != 1 || said.Resources[0].ID == "" {
		return "", &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: what, Message: strconv.Itoa(len(said.Resources)) + " resource groups match name: " + name +
			"; check g2ResourceGroupName, and whether the credential has the role Viewer on the resource group"}
	}
	b.resourceGroupID.Store(said.Resources[0].ID)
	return said.Resources[0].ID, nil
}
