package ibm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// lookAgain is the retry delay while a load balancer is being set up.
	lookAgain = 10 * time.Second
	// creationShows is how long a load balancer may stay invisible after its creation's response was lost.
	creationShows = 45 * time.Second
	// observedMaxAge is for load balancers and security groups. Our own writes are visible at once.
	observedMaxAge = 10 * time.Second
	// unlistedMaxAge lets many new Services share one listing.
	unlistedMaxAge = 3 * time.Second
	// partsMaxAge is for listeners, pools and members, unless the load balancer names other ones.
	partsMaxAge = 5 * time.Minute
	// subnetsMaxAge is for subnets, which rarely change.
	subnetsMaxAge = 5 * time.Minute
)

// observed holds the cloud's objects of a Service.
type observed struct {
	settings settings
	// lb is nil if there is no load balancer; parts are nil until they are read.
	lb    *loadBalancer
	parts *parts
	// group is the Service's own security group, read only for a deletion.
	group *securityGroup
	// deletable is set if the load balancer was created for the Service.
	deletable bool
	// former are load balancers that the Service had under other names, and unproved is one whose owner is unknown. Both are read only for a
	// deletion.
	former   []*loadBalancer
	unproved *loadBalancer
	// foreign is set if the load balancer of that name is somebody else's.
	foreign bool
	// missing reports host names in the status of a Service that is being deleted, which no load balancer has.
	missing []services.Finding
}

type change = services.Change[observed]

// reconciler compares what a Service asks for with the cloud. Its parts find and change the objects.
type reconciler struct {
	*reader
	finder   *finder
	records  *records
	writer   *writer
	security *securityGroups
	// adopted are IDs of adopted load balancers. Their records are written again if somebody removes them, such as by replacing the Service.
	adopted sync.Map
}

func newReconciler(a *api, i *instances, adopt registry.Adoption) *reconciler {
	own := `^` + regexp.QuoteMeta(namePrefix+a.config.Cluster) + `-[0-9a-f]`
	b, rec := newReader(a, i), &records{config: a.config}
	w := &writer{reader: b, records: rec}
	return &reconciler{
		reader: b, records: rec, writer: w, security: &securityGroups{reader: b, records: rec, writer: w},
		finder: &finder{
			reader: b, records: rec, adopt: adopt, ownForm: regexp.MustCompile(own + `{32}$`), ownOrCutForm: regexp.MustCompile(own + `{1,32}$`),
		},
	}
}

var (
	_ services.Reconciler[observed, desired] = (*reconciler)(nil)
	_ services.Asynchronous[observed]        = (*reconciler)(nil)
)

// newLoadBalancers repeats creations of unknown outcome, because names are unique in a VPC.
func newLoadBalancers(r *reconciler) *services.LoadBalancer[observed, desired] {
	return &services.LoadBalancer[observed, desired]{
		Reconciler: r, Name: r.records.name, Creations: &services.Creations{Shows: creationShows, Repeat: true}, Patience: busyPatience,
		Identify: r.instances.found.Identify,
	}
}

// Validate judges the Service by itself.
func (*reconciler) Validate(req services.Request) ([]services.Finding, error) {
	warnings, err := checkService(registry.Inputs{}, req.Service)
	return services.Judged(warnings, err), err
}

// Key implements services.Asynchronous.
func (*reconciler) Key(_ services.Request, o observed) string {
	if o.lb == nil {
		return ""
	}
	return o.lb.ID
}

// Settle implements services.Asynchronous: it reads the parts. Only a change waits for the cloud's own work.
func (r *reconciler) Settle(ctx context.Context, req *services.Request, o observed) (observed, error) {
	if o.lb == nil || o.parts != nil || req.Purpose == services.Delete {
		return o, nil
	}
	lb, err := r.loadBalancers.Get(ctx, o.lb.ID, inventory.Query{MaxAge: observedMaxAge})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound) && req.Purpose == services.Ensure:
		return observed{}, services.ErrGone
	case errors.Is(err, cloudapi.ErrNotFound):
		return observed{settings: o.settings, group: o.group, former: o.former}, nil
	case err != nil:
		return o, err
	}
	o.lb, o.parts, err = r.partsOf(ctx, lb)
	return o, err
}

// errNoNodes keeps a Service without any usable node from losing all members at once.
func errNoNodes(service *v1.Service, why string) error {
	return fmt.Errorf("%s for Service %s/%s; what there is stays as it is", why, service.Namespace, service.Name)
}

// Desire computes what should be there.
func (r *reconciler) Desire(ctx context.Context, req services.Request, o observed) (desired, []services.Finding, error) {
	s := o.settings
	d := desired{name: r.records.name("", req.Service), public: !s.isPrivate(), network: s.isNetwork(), settings: s}
	findings, err := r.finder.lostFindings(ctx, req.Service, d.name, o)
	if err != nil {
		return d, findings, err
	}
	refuse := func(err error) (desired, []services.Finding, error) {
		return d, append(findings, services.Warning(eventConfigError, "%v", err)), err
	}
	var more []services.Finding
	var subnets []string
	if o.lb == nil {
		if subnets, more, err = r.newSubnets(ctx, req, s); err != nil {
			return d, append(findings, more...), err
		}
		if isControllerName(r.records.chosenName(req.Service)) {
			return refuse(refuseFor(annotationName, d.name, "is of the form of the names that controllers give to the load balancers of other Services, "+
				"and there is none of this name to be had; choose another name"))
		}
	} else {
		more, err = r.checkImmutable(ctx, req, o)
		if findings = append(findings, more...); err != nil {
			return refuse(err)
		}
		d.network = o.lb.isNetwork()
		if d.subnets, err = r.otherSubnets(ctx, s, o); err != nil {
			return refuse(err)
		}
	}
	d.ports = s.ports(req.Service, d.network)
	d.members, more, err = r.members(ctx, req, d.network, o)
	if findings = append(findings, more...); err != nil {
		return refuse(err)
	}
	d.access, more, err = r.security.access(ctx, req, o, d.ports)
	if findings = append(findings, more...); err != nil || o.lb != nil {
		return d, findings, err
	}
	group, err := r.resourceGroup(ctx)
	switch {
	case errors.Is(err, cloudapi.ErrInvalid):
		return refuse(err)
	case err != nil:
		return d, findings, err
	}
	d.create = d.creation(group, subnets)
	return d, findings, nil
}

// members are the targets of the nodes. Network load balancers take only instances that exist.
func (r *reconciler) members(ctx context.Context, req services.Request, network bool, o observed) ([]target, []services.Finding, error) {
	if len(req.Nodes) == 0 {
		return nil, nil, errNoNodes(req.Service, "no node can be a backend")
	}
	nodes := o.settings.receivingNodes(req.Nodes)
	if len(nodes) == 0 {
		return nil, nil, errNoNodes(req.Service, "no node has the label or the zone of the annotations")
	}
	receivers, unconfirmed, err := r.instances.receivers(ctx, nodes, network)
	if err != nil {
		return nil, nil, err
	}
	have := currentTargets(o.parts)
	kept, findings := keepUnconfirmed(unconfirmed, have)
	receivers = append(receivers, kept...)
	list, dropped := o.settings.targets(req.Service, receivers, have)
	if len(list) == 0 {
		return nil, findings, errNoNodes(req.Service, "none of the available nodes has an address or an instance")
	}
	if dropped > 0 {
		advice := fmt.Sprintf("choose nodes by %s or %s, or set externalTrafficPolicy", annotationNodeSelector, annotationQuota)
		findings = append(findings, services.LeftOut(eventTooMany, ibmlimits.Members, dropped, advice))
	}
	return list, append(findings, removalFindings(req, receivers, network, have)...), nil
}

// checkImmutable refuses settings that IBM Cloud cannot change on an existing load balancer.
func (r *reconciler) checkImmutable(ctx context.Context, req services.Request, o observed) (findings []services.Finding, err error) {
	s := o.settings
	word := map[bool]string{true: "public", false: "private"}
	switch {
	case o.lb.Provisioning == stateFailed:
		return []services.Finding{services.Warning(eventFailed, "load balancer %s has failed; its page in the console, or IBM's support, tells why", o.lb.Name)},
			fmt.Errorf("load balancer %s is %s/%s; it is made again when it, or the Service, is deleted", o.lb.Name, o.lb.Operating, o.lb.Provisioning)
	case o.lb.Public == s.isPrivate():
		return nil, refuseFor(annotationIPType, s.IPType, "comes too late: the load balancer is %s, which IBM Cloud never changes; make the Service again", word[o.lb.Public])
	case o.lb.isNetwork() && !s.isNetwork():
		return nil, refuseFor(annotationFeatures, s.Features, "comes too late: the load balancer is network, which IBM Cloud never changes; make the Service again")
	case !o.lb.isNetwork() && s.isNetwork() && slices.ContainsFunc(req.Service.Spec.Ports, func(p v1.ServicePort) bool {
		return p.Protocol == v1.ProtocolUDP
	}):
		return nil, refuseFor(annotationFeatures, s.Features, "comes too late: the load balancer is application, which serves no UDP; make the Service again")
	case !o.lb.isNetwork() && s.isNetwork():
		findings = append(findings, services.Warning(eventOtherKind, "load balancer %s was created as an application load balancer, and is kept so", o.lb.Name))
	}
	if s.Subnets == "" || !o.lb.isNetwork() { // those of an application load balancer can be changed
		return findings, nil
	}
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err != nil {
		return findings, err
	}
	want, err := s.namedSubnets(all, r.api.config.Subnets)
	have := idsOf(o.lb.Subnets)
	if err == nil && !services.SameSet(have, want) {
		err = refuseFor(annotationSubnets, s.Subnets, "come too late: the load balancer is in subnets %s, which IBM Cloud never changes; make the Service again", strings.Join(have, " "))
	}
	return findings, err
}

// Fixed implements services.Fixer.
func (*reconciler) Fixed(_ context.Context, _ services.Request, o observed, d desired) ([]services.Fixed, error) {
	if o.lb == nil {
		return nil, nil
	}
	s, has := d.settings, dnsRequest{}
	if o.lb.DNS != nil {
		has = *o.lb.DNS
	}
	if s.DNSInstance == "" || s.DNSZone == "" {
		return nil, nil // both are needed
	}
	return []services.Fixed{
		services.Single(annotationDNSInstance, s.DNSInstance, has.Instance.CRN),
		services.Single(annotationDNSZone, s.DNSZone, has.Zone.ID),
	}, nil
}

// otherSubnets returns the subnets that an application load balancer is to have instead of its own; nil leaves them as they are.
func (r *reconciler) otherSubnets(ctx context.Context, s settings, o observed) ([]reference, error) {
	if s.Subnets == "" || o.lb.isNetwork() {
		return nil, nil
	}
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err != nil {
		return nil, err
	}
	want, err := s.namedSubnets(all, r.api.config.Subnets)
	if err != nil || services.SameSet(idsOf(o.lb.Subnets), want) {
		return nil, err
	}
	return references(want), nil
}

// newSubnets returns the subnets of a load balancer to be created.
func (r *reconciler) newSubnets(ctx context.Context, req services.Request, s settings) ([]string, []services.Finding, error) {
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err != nil {
		return nil, nil, err
	}
	ids, err := s.subnetsFor(all, r.api.config.Subnets)
	if err != nil {
		return nil, []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
	}
	if s.isNetwork() {
		ids = r.chooseSubnet(ctx, ids, all, s.receivingNodes(req.Nodes))
	}
	return ids, nil, nil
}

// chooseSubnet prefers the subnet of a network load balancer by its zone: one with nodes, with the fewest network load balancers of the
// cluster, with the most nodes.
func (r *reconciler) chooseSubnet(ctx context.Context, ids []string, all []subnet, nodes []*v1.Node) []string {
	zones, count := map[string]string{}, map[string]int{}
	for _, n := range all {
		zones[n.ID] = n.Zone.Name
	}
	for _, n := range nodes {
		count[zoneOf(n)]++
	}
	used, names := map[string]int{}, map[string]bool{}
	services, _ := r.finder.cluster.Services(ctx) // without them the zones count as equal
	for _, s := range services {
		names[r.records.name("", s)] = true
	}
	for _, lb := range r.loadBalancers.PeekAll() {
		if lb.isNetwork() && len(lb.Subnets) > 0 && names[lb.Name] {
			used[zones[lb.Subnets[0].ID]]++
		}
	}
	slices.SortStableFunc(ids, func(a, b string) int {
		za, zb := zones[a], zones[b]
		return cmp.Or(min(count[zb], 1)-min(count[za], 1), used[za]-used[zb], count[zb]-count[za])
	})
	return ids[:min(len(ids), 1)]
}

// Complete waits for what the status needs: an application load balancer has its host name at once, and a network load balancer its address
// when it is ready.
func (r *reconciler) Complete(ctx context.Context, req *services.Request, o observed, d desired) (observed, error) {
	if err := r.records.noteAfter(ctx, req, o); err != nil {
		return o, err
	}
	if o.lb == nil || isReady(o.lb) {
		return o, nil
	}
	ctx, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	lb, err := r.room.Until(ctx, o.lb.ID, "load balancer "+o.lb.Name, func(lb *loadBalancer) bool { return isReady(lb) || lb.Provisioning == stateFailed })
	if err != nil {
		return o, retryLater(err, o.lb.Name)
	}
	o.lb = lb
	return o, nil
}

// isReady reports whether a load balancer shows what the status needs.
func isReady(lb *loadBalancer) bool {
	return lb.Hostname != "" && (!lb.isNetwork() || (lb.Provisioning == stateActive && lb.ip() != ""))
}

// Status implements services.Reconciler.
func (*reconciler) Status(_ services.Request, o observed, _ desired) (*v1.LoadBalancerStatus, error) {
	if !isReady(o.lb) {
		return nil, cloudproviderapi.NewRetryError("the load balancer "+o.lb.Name+" is being set up", lookAgain)
	}
	return statusOf(o.lb), nil
}

func statusOf(lb *loadBalancer) *v1.LoadBalancerStatus {
	if lb.Hostname == "" {
		return &v1.LoadBalancerStatus{}
	}
	in := v1.LoadBalancerIngress{Hostname: lb.Hostname}
	if lb.isNetwork() {
		in.IP = lb.ip()
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{in}}
}

// Exists implements services.Reconciler.
func (*reconciler) Exists(_ context.Context, _ services.Request, o observed) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil { // objects that stay count too, so that the deletion reports them
		return nil, o.group != nil || o.unproved != nil || len(o.former) > 0, nil
	}
	return statusOf(o.lb), true, nil
}
