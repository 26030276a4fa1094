package cloudstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// maxCreationDelay bounds how late a call without response may take effect. Later objects belong to somebody else.
	maxCreationDelay = 2 * time.Minute
	// lookAgain is the retry delay while CloudStack is busy.
	lookAgain = 5 * time.Second
	// patience bounds how long one reconciliation waits for CloudStack.
	patience = 5 * time.Minute
)

// reconciler makes the rules of load balancers. Its parts make what else belongs to these.
type reconciler struct {
	*inventories
	adopt     registry.Adoption
	cluster   *ownership.Cluster
	instances *instances

	records    *records
	ips        *publicIPs
	access     *access
	stickiness *stickyPolicies
}

func newReconciler(i *instances, adopt registry.Adoption) *reconciler {
	rec := &records{api: i.api, requests: map[types.UID]string{}}
	return &reconciler{
		inventories: i.objects, adopt: adopt, cluster: i.cluster, instances: i, records: rec,
		ips: &publicIPs{inventories: i.objects, cluster: i.cluster, instances: i, records: rec}, access: &access{i.objects},
		stickiness: &stickyPolicies{inventories: i.objects, records: rec},
	}
}

// observed holds a Service's rules: those of one name at an address.
type observed struct {
	name     string
	settings settings
	rules    []rule
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

func newObserved(name string) *observed {
	return &observed{name: name, members: map[string][]string{}, policies: map[string]policies{}, failures: map[int]error{}}
}

// command returns a change in the network, for the load balancer.
func (lb *observed) command(what, command string, p params) jobRequest {
	return jobRequest{network: lb.network.key(), owner: lb.name, what: what, command: command, params: p}
}

// findRule returns the rule that was made for a port, unless that was refused.
func (lb *observed) findRule(w wantedRule) (found rule, there bool) {
	at := slices.IndexFunc(lb.rules, func(o rule) bool { return o.Name == w.Name && lb.address != nil && o.AddressID == lb.address.ID })
	if at < 0 || lb.isRefused(w.Port) {
		return rule{}, false
	}
	return lb.rules[at], true
}

// isRefused reports whether a change of the port has failed.
func (lb *observed) isRefused(port int) bool { return lb.failures[port] != nil }

var (
	_ services.Reconciler[*observed, desired] = (*reconciler)(nil)
	_ services.Asynchronous[*observed]        = (*reconciler)(nil)
)

// newLoadBalancers waits for creations of unknown outcome, because ACL items may exist twice. Addresses are found again, and rules are
// unique for each port.
func newLoadBalancers(r *reconciler) *services.LoadBalancer[*observed, desired] {
	return &services.LoadBalancer[*observed, desired]{
		Reconciler: r, Name: loadBalancerName, Creations: &services.Creations{Shows: creationShows}, Patience: patience,
		Identify: r.instances.Identify,
	}
}

func (*reconciler) Validate(req services.Request) ([]services.Finding, error) {
	warnings, err := checkService(registry.Inputs{}, req.Service)
	return services.Judged(warnings, err), err
}

// Observe implements services.Reconciler. It finds rules by name, which contains the Service's UID, in the shared listing.
func (r *reconciler) Observe(ctx context.Context, req services.Request) (*observed, error) {
	r.records.noteFirst(req.Service)
	lb := newObserved(loadBalancerName(req.Cluster, req.Service))
	lb.settings, _, _ = parseSettings(req.Service) // Validate tells of faults; they hinder neither a deletion nor nodes
	if req.Purpose != services.Plan && req.Purpose != services.Lookup {
		waited, err := r.api.jobs.waitForPending(ctx, lb.name)
		if waited {
			r.invalidateAll()
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
func (r *reconciler) CheckOwner(ctx context.Context, req services.Request, lb *observed) (*observed, []services.Finding, error) {
	if len(lb.rules) > 0 {
		decision, err := r.cluster.Judge(ctx, req.Service, objectOf(lb.name, lb.rules), r.ownership(), nil)
		if err != nil {
			return lb, nil, err
		}
		if refusal := decision.Err(); refusal != nil {
			if req.Purpose == services.Ensure || req.Purpose == services.Plan {
				return lb, []services.Finding{services.Warning(ownership.EventNotOurs, "%v", refusal)}, refusal
			}
			lb.rules, lb.foreign = nil, true
		}
	}
	if req.Purpose == services.Lookup {
		return lb, nil, nil
	}
	return lb, nil, r.readDetails(ctx, req, lb)
}

// readDetails reads the rules' address, network, filter and machines.
func (r *reconciler) readDetails(ctx context.Context, req services.Request, lb *observed) (err error) {
	if len(lb.rules) == 0 {
		return nil
	}
	if req.Purpose != services.Narrow {
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
	if req.Purpose == services.UpdateNodes {
		return nil
	}
	id, _ := addressOf(lb.rules)
	a, err := r.addresses.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge, MaxMissAge: observedMaxAge})
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	lb.address = &a
	if req.Purpose != services.Narrow {
		if err := r.stickiness.readPolicies(ctx, req, lb); err != nil {
			return err
		}
	}
	return r.access.readFilter(ctx, lb)
}

// Key implements services.Asynchronous. It serializes work on a Service; jobs serializes work on a network.
func (*reconciler) Key(_ services.Request, lb *observed) string { return lb.name }

// Settle implements services.Asynchronous: it waits for rules and addresses that are being created or deleted.
func (r *reconciler) Settle(_ context.Context, _ *services.Request, lb *observed) (*observed, error) {
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
func (r *reconciler) Desire(ctx context.Context, req services.Request, lb *observed) (desired, []services.Finding, error) {
	d := desired{rules: wantedRules(req.Service, lb.settings), sources: allowedNetworks(req.Service)}
	machines, unknown, err := r.instances.machinesOf(ctx, req.Nodes)
	if err != nil {
		return d, nil, err
	}
	if len(lb.rules) == 0 {
		if err := r.chooseNetwork(ctx, req, lb, machines); err != nil {
			return d, nil, err
		}
	}
	var findings []services.Finding
	d.backends, findings = backendsOf(machines, unknown, lb.network.ID)
	if d.description, err = r.description(ctx, req.Service, lb); err != nil {
		return d, findings, err
	}
	if d.cidrsInPlace, err = r.api.changesNetworks(ctx); err != nil {
		return d, findings, err
	}
	more, err := checkNetwork(&d, lb)
	return d, append(findings, more...), err
}

// Fixed implements services.Fixer.
func (*reconciler) Fixed(_ context.Context, req services.Request, lb *observed, _ desired) ([]services.Fixed, error) {
	if lb.address == nil {
		return nil, nil
	}
	place := annotationAddress
	if req.Service.Annotations[place] == "" {
		place = portable.FieldLoadBalancerIP
	}
	return []services.Fixed{services.Single(place, lb.settings.Address, lb.address.IP)}, nil
}

// chooseNetwork selects the network of a new load balancer, and finds its recorded address.
func (r *reconciler) chooseNetwork(ctx context.Context, req services.Request, lb *observed, machines []machine) (err error) {
	if len(machines) == 0 { // nodes that are not ready show the network too
		if machines, _, err = r.instances.machinesOf(ctx, r.instances.nodes.Nodes()); err != nil {
			return err
		}
	}
	id := networkOf(machines)
	if id == "" {
		return cloudproviderapi.NewRetryError(errNoNodes.Error(), 6*lookAgain)
	}
	if lb.network, err = r.networks.Get(ctx, id, inventory.Query{MaxAge: networkMaxAge}); err != nil {
		return fmt.Errorf("reading network %s: %w", id, cloudapi.NotAbsence(err))
	}
	if lb.address == nil && recordOf(req.Service).id != "" { // one of unknown ID is found when an address is acquired
		if lb.address, err = r.ips.recordedAddress(ctx, &req, lb.network, lb.settings.Address); err != nil {
			return err
		}
	}
	return r.access.readFilter(ctx, lb)
}

// description returns the description that marks a new rule. CloudStack's own controller searches descriptions for names of load balancers
// too; no mark contains one.
func (r *reconciler) description(ctx context.Context, service *v1.Service, lb *observed) (string, error) {
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return "", err
	}
	marks := append([]string{mark}, ownership.ServiceMarks(service)...)
	s := lb.settings
	s.KeepIP = false // keeping it does not affect whether it was acquired
	if lb.address != nil && r.records.isAcquiredFor(service, s, lb.rules, *lb.address) {
		marks = append(marks, addressMark(lb.address.ID))
	}
	return strings.Join(slices.DeleteFunc(marks, func(m string) bool { return m == "" }), " "), nil
}

// Complete implements services.Reconciler: refusals of single ports become the error.
func (r *reconciler) Complete(ctx context.Context, req *services.Request, lb *observed, _ desired) (*observed, error) {
	problems := append(slices.Clone(lb.problems), r.stickiness.removeAnnotation(ctx, req, lb))
	return lb, errors.Join(slices.AppendSeq(problems, maps.Values(lb.failures))...)
}

// Status implements services.Reconciler.
func (*reconciler) Status(_ services.Request, lb *observed, _ desired) (*v1.LoadBalancerStatus, error) {
	return statusOf(lb.address.IP, lb.settings), nil
}

// Exists implements services.Reconciler. An acquired address without rules counts too.
func (r *reconciler) Exists(ctx context.Context, req services.Request, lb *observed) (*v1.LoadBalancerStatus, bool, error) {
	if len(lb.rules) > 0 {
		_, ip := addressOf(lb.rules)
		return statusOf(ip, lb.settings), true, nil
	}
	if lb.foreign {
		return nil, false, nil
	}
	items, err := r.access.leftoverItems(ctx, lb)
	if err != nil {
		return nil, false, err
	}
	left, err := r.ips.unusedAddress(ctx, req.Service, lb.settings)
	if err != nil || (left == nil && len(items) == 0) {
		return nil, false, err
	}
	return &v1.LoadBalancerStatus{}, true, nil
}
