package cloudstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

const (
	// observedMaxAge is for rules, addresses and firewalls. Our own writes are visible at once.
	observedMaxAge = 10 * time.Second
	// unlistedMaxAge lets many new Services share one listing.
	unlistedMaxAge = 3 * time.Second
	// membersMaxAge is for the machines of rules, which cost a call for each rule.
	membersMaxAge = time.Minute
	// networkMaxAge is for networks, which rarely change.
	networkMaxAge = 10 * time.Minute
	// creationShows is how long an object may stay invisible after its creation's response was lost.
	creationShows = 45 * time.Second
	// creationTakes bounds how late a call without response may take effect. Later objects belong to somebody else.
	creationTakes = 2 * time.Minute
	// lookAgain is the retry delay while CloudStack is busy.
	lookAgain = 5 * time.Second
	// patience bounds how long one reconciliation waits for CloudStack.
	patience = 5 * time.Minute

	indexOwner   = "owner"
	indexAddress = "address"
)

type reconciler struct {
	api       *api
	adopt     registry.Adoption
	cluster   ownership.Cluster
	kube      kubernetes.Interface
	instances *instances
	questions requestRecords

	rules     *inventory.Inventory[string, rule]
	members   *inventory.Inventory[string, members]
	firewall  *inventory.Inventory[string, firewallRule]
	addresses *inventory.Inventory[string, address]
	networks  *inventory.Inventory[string, network]
	acls      *inventory.Inventory[string, *acl]
	policies  *inventory.Inventory[string, policies]
}

func newReconciler(a *api, i *instances, adopt registry.Adoption) *reconciler {
	return &reconciler{
		api: a, instances: i, adopt: adopt, questions: requestRecords{records: map[types.UID]string{}},
		rules: inventory.New(inventory.Source[string, rule]{
			Kind: "load balancer rule", ID: func(r rule) string { return r.ID }, List: a.rules, Get: a.rule,
			Indexes: map[string]func(rule) []string{
				indexOwner: func(r rule) []string { return []string{r.owner()} }, indexAddress: func(r rule) []string { return []string{r.AddressID} },
			},
		}),
		members: inventory.New(inventory.Source[string, members]{
			Kind: "rule's virtual machines", ID: func(m members) string { return m.RuleID }, Get: a.members,
		}),
		firewall: inventory.New(inventory.Source[string, firewallRule]{
			Kind: "firewall rule", ID: func(f firewallRule) string { return f.ID }, List: a.firewallRules,
			Indexes: map[string]func(firewallRule) []string{indexAddress: func(f firewallRule) []string { return []string{f.AddressID} }},
		}),
		addresses: inventory.New(inventory.Source[string, address]{
			Kind: "public address", ID: func(a address) string { return a.ID }, List: a.addresses, Get: a.address,
		}),
		networks: inventory.New(inventory.Source[string, network]{
			Kind: "network", ID: func(n network) string { return n.ID }, List: a.networks, Get: a.network,
		}),
		policies: inventory.New(inventory.Source[string, policies]{
			Kind: "rule's stickiness policies", ID: func(p policies) string { return p.RuleID }, Get: a.policiesOf,
		}),
		acls: inventory.New(inventory.Source[string, *acl]{Kind: "network ACL list", ID: func(a *acl) string { return a.id }, Get: a.readACL}),
	}
}

// loadBalancer holds a Service's rules: those of one name at an address.
type loadBalancer struct {
	name  string
	rules []rule
	// foreign is set where rules of this name are somebody else's, and so all that bears the name.
	foreign bool
	// address is that of the rules, or the one that was taken for the Service and has none yet; nil where there is none.
	address *address
	network network
	// members are the virtual machines behind each rule.
	members map[string][]string
	// firewall holds the rules at the address, acl the tier's list, others the rules of other load balancers.
	firewall []firewallRule
	acl      *acl
	others   []rule
	// policies holds stickiness policies by rule; noPolicies is set if the role may not list them.
	policies   map[string]policies
	noPolicies bool
	// problems are refused settings other than ports.
	problems []error
	// failures holds the errors of ports that are left as they are.
	failures map[int]error
}

func newLoadBalancer(name string) *loadBalancer {
	return &loadBalancer{name: name, members: map[string][]string{}, policies: map[string]policies{}, failures: map[int]error{}}
}

// isRefused reports whether a change of the port has failed.
func (lb *loadBalancer) isRefused(port int) bool { return lb.failures[port] != nil }

var (
	_ services.Reconciler[*loadBalancer, spec] = (*reconciler)(nil)
	_ services.Asynchronous[*loadBalancer]     = (*reconciler)(nil)
)

// newLoadBalancers waits for creations of unknown outcome, because ACL items may exist twice. Addresses are found again, and rules are
// unique for each port.
func newLoadBalancers(r *reconciler) *services.LoadBalancer[*loadBalancer, spec] {
	return &services.LoadBalancer[*loadBalancer, spec]{
		Reconciler: r, Name: loadBalancerName, Creations: services.Creations{Shows: creationShows}, Patience: patience,
		Identify: r.instances.Identify,
	}
}

func (*reconciler) Validate(q services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(q.Service)
	return services.Judged(warnings, err), err
}

// Observe implements services.Reconciler. It finds rules by name, which contains the Service's UID, in the shared listing.
func (r *reconciler) Observe(ctx context.Context, q services.Request) (*loadBalancer, error) {
	r.questions.noteFirst(q.Service)
	lb := newLoadBalancer(loadBalancerName(q.Cluster, q.Service))
	if q.Purpose != services.Plan && q.Purpose != services.Lookup {
		waited, err := r.api.jobs.waitForPending(ctx, lb.name)
		if waited {
			r.forgetAll()
		}
		if err != nil {
			return lb, err
		}
	}
	var err error
	lb.rules, err = r.rules.Find(ctx, indexOwner, lb.name, inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
	slices.SortFunc(lb.rules, byPort)
	return lb, err
}

// forgetAll invalidates everything that an earlier job may have changed.
func (r *reconciler) forgetAll() {
	r.rules.InvalidateAll()
	r.members.InvalidateAll()
	r.firewall.InvalidateAll()
	r.addresses.InvalidateAll()
	r.acls.InvalidateAll()
	r.policies.InvalidateAll()
}

func (r *reconciler) ownership() ownership.Rules {
	return ownership.Rules{Adopt: r.adopt, Names: func(s *v1.Service) []string { return []string{loadBalancerName("", s)} }}
}

// objectOf returns the names, marks and addresses that identify the owner of rules of one name.
func objectOf(name string, rules []rule) ownership.Object {
	o := ownership.Object{Title: "load balancer " + name, ID: name, Name: name}
	for _, found := range rules {
		o.Marks = append(o.Marks, found.marks()...)
		o.Addresses = append(o.Addresses, found.Address)
	}
	return o
}

// CheckOwner implements services.Reconciler, and reads the objects that belong to the rules.
func (r *reconciler) CheckOwner(ctx context.Context, q services.Request, lb *loadBalancer) (*loadBalancer, []services.Finding, error) {
	if len(lb.rules) > 0 {
		decision, err := r.cluster.Judge(ctx, q.Service, objectOf(lb.name, lb.rules), r.ownership(), nil)
		if err != nil {
			return lb, nil, err
		}
		if refusal := decision.Err(); refusal != nil {
			if q.Purpose == services.Ensure || q.Purpose == services.Plan {
				return lb, []services.Finding{services.Warning(ownership.EventNotOurs, "%v", refusal)}, refusal
			}
			lb.rules, lb.foreign = nil, true
		}
	}
	if q.Purpose == services.Lookup {
		return lb, nil, nil
	}
	return lb, nil, r.readDetails(ctx, q, lb)
}

// readDetails reads the rules' address, network, filter and machines.
func (r *reconciler) readDetails(ctx context.Context, q services.Request, lb *loadBalancer) (err error) {
	if len(lb.rules) == 0 {
		return nil
	}
	if q.Purpose != services.Narrow {
		for _, found := range lb.rules {
			m, err := r.members.Get(ctx, found.ID, inventory.Query{MaxAge: membersMaxAge})
			if err != nil {
				return err
			}
			lb.members[found.ID] = m.IDs
		}
	}
	if lb.network, err = r.networks.Get(ctx, lb.rules[0].NetworkID, inventory.Query{MaxAge: networkMaxAge}); err != nil {
		return fmt.Errorf("reading network %s: %w", lb.rules[0].NetworkID, err)
	}
	if q.Purpose == services.UpdateNodes {
		return nil
	}
	id, _ := addressOf(lb.rules)
	a, err := r.addresses.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge, MaxMissAge: observedMaxAge})
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	lb.address = &a
	if q.Purpose != services.Narrow {
		if err := r.readPolicies(ctx, q, lb); err != nil {
			return err
		}
	}
	return r.readFilter(ctx, lb)
}

// readFilter reads the firewall rules or the ACL list.
func (r *reconciler) readFilter(ctx context.Context, lb *loadBalancer) (err error) {
	query := inventory.Query{MaxAge: observedMaxAge}
	switch lb.network.filter() {
	case byFirewall:
		lb.firewall, err = r.firewall.All(ctx, query)
		return err
	case byACL:
		if lb.acl, err = r.aclOfNetwork(ctx, lb.network, query); err != nil {
			return err
		}
		lb.others, err = r.rulesOfSameACL(ctx, lb, query)
		return err
	case open:
	}
	return nil
}

// Key implements services.Asynchronous. It serializes work on a Service; jobs serializes work on a network.
func (*reconciler) Key(_ services.Request, lb *loadBalancer) string { return lb.name }

// Settle implements services.Asynchronous: it waits for rules and addresses that are being created or deleted.
func (r *reconciler) Settle(_ context.Context, _ *services.Request, lb *loadBalancer) (*loadBalancer, error) {
	for _, found := range lb.rules {
		if found.State == stateDeleting {
			r.rules.Invalidate(found.ID)
			return lb, cloudproviderapi.NewRetryError("CloudStack is still deleting load balancer rule "+found.Name, lookAgain)
		}
	}
	if lb.address != nil && !lb.address.isReady() {
		r.addresses.Invalidate(lb.address.ID)
		return lb, cloudproviderapi.NewRetryError(fmt.Sprintf("address %s is %s", lb.address.IP, lb.address.State), lookAgain)
	}
	return lb, nil
}

// errNoNodes is for a new load balancer whose network is unknown.
var errNoNodes = errors.New("no node of the cluster tells in which network the load balancer is to be; it is made once there is one")

// Desire implements services.Reconciler.
func (r *reconciler) Desire(ctx context.Context, q services.Request, lb *loadBalancer) (spec, []services.Finding, error) {
	s, _, err := parseSettings(q.Service) // validated before
	if err != nil {
		return spec{}, nil, err
	}
	d := spec{name: lb.name, rules: desire(q.Service, s), sources: allowedNetworks(q.Service), wanted: s.requestedAddress(q.Service)}
	machines, unknown, err := r.instances.machinesOf(ctx, q.Nodes)
	if err != nil {
		return d, nil, err
	}
	if len(lb.rules) == 0 {
		if err := r.chooseNetwork(ctx, q, lb, machines); err != nil {
			return d, nil, err
		}
	}
	d.network = lb.network
	d.sticky, _ = stickinessOf(q.Service, s) // validated by parseSettings
	var findings []services.Finding
	d.backends, findings = backendsOf(machines, unknown, lb.network.ID)
	if d.description, err = r.description(ctx, q.Service, lb.rules, lb.address); err != nil {
		return d, findings, err
	}
	if d.inPlace, err = r.api.changesNetworks(ctx); err != nil {
		return d, findings, err
	}
	more, err := judge(&d, lb)
	return d, append(findings, more...), err
}

// Fixed implements services.Fixer.
func (*reconciler) Fixed(_ context.Context, q services.Request, lb *loadBalancer, d spec) ([]services.Fixed, error) {
	if lb.address == nil {
		return nil, nil
	}
	place := annotationAddress
	if q.Service.Annotations[place] == "" {
		place = portable.FieldLoadBalancerIP
	}
	return []services.Fixed{services.Single(place, d.wanted, lb.address.IP)}, nil
}

// chooseNetwork selects the network of a new load balancer, and finds its recorded address.
func (r *reconciler) chooseNetwork(ctx context.Context, q services.Request, lb *loadBalancer, machines []machine) (err error) {
	if len(machines) == 0 { // nodes that are not ready show the network too
		if machines, _, err = r.instances.machinesOf(ctx, r.instances.nodes.Nodes()); err != nil {
			return err
		}
	}
	var all []vm
	for _, m := range machines {
		all = append(all, m.vm)
	}
	id := networkOf(all)
	if id == "" {
		return cloudproviderapi.NewRetryError(errNoNodes.Error(), 6*lookAgain)
	}
	if lb.network, err = r.networks.Get(ctx, id, inventory.Query{MaxAge: networkMaxAge}); err != nil {
		return fmt.Errorf("reading network %s: %w", id, cloudapi.NotAbsence(err))
	}
	s, _, _ := parseSettings(q.Service)
	if lb.address == nil && recordOf(s.Record).id != "" { // one of unknown ID is found when an address is acquired
		if lb.address, err = r.recordedAddress(ctx, &q, lb.network); err != nil {
			return err
		}
	}
	return r.readFilter(ctx, lb)
}

// description returns the description that marks a new rule. CloudStack's own controller searches descriptions for names of load balancers
// too; no mark contains one.
func (r *reconciler) description(ctx context.Context, service *v1.Service, rules []rule, taken *address) (string, error) {
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return "", err
	}
	marks := append([]string{mark}, ownership.ServiceMarks(service)...)
	s, _, _ := parseSettings(service)
	s.KeepIP = false // keeping it does not affect whether it was acquired
	if taken != nil && r.isAcquiredFor(service, s, rules, *taken) {
		marks = append(marks, addressMark(taken.ID))
	}
	return strings.Join(slices.DeleteFunc(marks, func(m string) bool { return m == "" }), " "), nil
}

// Complete implements services.Reconciler: refusals of single ports become the error.
func (r *reconciler) Complete(ctx context.Context, q *services.Request, lb *loadBalancer, d spec) (*loadBalancer, error) {
	problems := append(slices.Clone(lb.problems), r.removeStickyAnnotation(ctx, q, lb, d))
	for _, err := range lb.failures {
		problems = append(problems, err)
	}
	return lb, errors.Join(problems...)
}

// Status implements services.Reconciler.
func (*reconciler) Status(q services.Request, lb *loadBalancer, _ spec) (*v1.LoadBalancerStatus, error) {
	s, _, _ := parseSettings(q.Service) // validated before
	return statusOf(lb.address.IP, s), nil
}

// Exists implements services.Reconciler. An acquired address without rules counts too.
func (r *reconciler) Exists(ctx context.Context, q services.Request, lb *loadBalancer) (*v1.LoadBalancerStatus, bool, error) {
	s, _, _ := parseSettings(q.Service) // an invalid annotation must not hide it
	if len(lb.rules) > 0 {
		_, ip := addressOf(lb.rules)
		return statusOf(ip, s), true, nil
	}
	if lb.foreign {
		return nil, false, nil
	}
	items, err := r.leftoverItems(ctx, lb)
	if err != nil {
		return nil, false, err
	}
	left, err := r.unusedAddress(ctx, q.Service, s)
	if err != nil || (left == nil && len(items) == 0) {
		return nil, false, err
	}
	return &v1.LoadBalancerStatus{}, true, nil
}
