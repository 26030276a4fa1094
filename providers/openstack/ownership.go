package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacklimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// finder finds the load balancers of Services, and decides whose they are.
type finder struct {
	config        Config
	adopt         registry.Adoption
	cluster       *ownership.Cluster
	instances     *instances
	loadBalancers *inventory.Inventory[string, *loadBalancer]
	parts         *partsReader
	floatingIPs   *floatingIPs

	// ownerUIDs holds, by load balancer ID, the UID of the Service that owns it although its name is ambiguous. IDs are never used again.
	ownerUIDs sync.Map
	// clusterName is the cluster's name as last passed by the framework.
	clusterName atomic.Value
}

// isUsedByOthers reports whether another Service uses the load balancer.
func isUsedByOthers(lb *loadBalancer, r role) bool {
	return slices.ContainsFunc(lb.Tags, func(t string) bool { return strings.HasPrefix(t, namePrefix) && t != r.name && t != r.former })
}

// isMadeByController reports whether a controller created the load balancer; others belong to users.
func isMadeByController(lb *loadBalancer, service *v1.Service) bool {
	return strings.HasPrefix(lb.Name, namePrefix) || lb.Name == legacyName(service)
}

// noteLoss drops what is known of a load balancer that somebody deleted: its floating address has no port any more.
func (f *finder) noteLoss(id string) {
	f.parts.forget(id)
	f.floatingIPs.InvalidateAll()
}

// find returns the Service's load balancer, or nil: the recorded one, otherwise the one with its name.
func (f *finder) find(ctx context.Context, cluster string, service *v1.Service) (*loadBalancer, error) {
	f.clusterName.Store(cluster)
	id, fresh := service.Annotations[annotationID], inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: newMaxAge}
	if id == "" {
		return f.findByName(ctx, cluster, service, fresh)
	}
	if !identifier.MatchString(id) {
		return nil, &schema.Problem{Place: "annotation " + annotationID, Value: id, Reason: "is not the ID of a load balancer, which is a UUID"}
	}
	lb, err := f.loadBalancers.Get(ctx, id, inventory.Query{MaxAge: ensureMaxAge, MaxMissAge: newMaxAge})
	switch {
	case err == nil && lb.isBeingDeleted():
		return lb, nil
	case err == nil && ownership.Leaves(service):
		return f.findInstead(ctx, cluster, service, lb)
	case !errors.Is(err, cloudapi.ErrNotFound):
		return lb, err
	}
	f.noteLoss(id)
	if id == service.Annotations[annotationMade] || ownership.Leaves(service) {
		return f.findByName(ctx, cluster, service, fresh) // the load balancer that we created was removed, and is created again
	}
	return nil, &schema.Problem{
		Place: "annotation " + annotationID, Value: id,
		Reason: "is not the ID of a load balancer of the project; correct it, or remove it to have a new load balancer made",
	}
}

// findInstead returns the load balancer that a Service names when it goes, or its own where it names one that it does not use.
func (f *finder) findInstead(ctx context.Context, cluster string, service *v1.Service, named *loadBalancer) (*loadBalancer, error) {
	if _, uses, err := f.findRole(ctx, cluster, service, named); err != nil || uses {
		return named, err
	}
	own, err := f.findByName(ctx, cluster, service, inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: newMaxAge})
	if own == nil {
		own = named
	}
	return own, err
}

func (f *finder) findByName(ctx context.Context, cluster string, service *v1.Service, q inventory.Query) (*loadBalancer, error) {
	mark, err := f.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{loadBalancerName(cluster, service), legacyName(service)} {
		found, err := f.loadBalancers.Find(ctx, indexName, name, q)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(slices.Clone(found), func(lb *loadBalancer) bool {
			// Another cluster of the same name may have a Service of the same name.
			return lb.isBeingDeleted() || (len(found) > 1 && ownership.Check("load balancer "+lb.ID, mark, lb.Tags) != nil)
		})
		if len(found) > 1 { // two processes created one each, or a lost creation took effect late
			made := slices.DeleteFunc(
				slices.Clone(found), func(lb *loadBalancer) bool { return !slices.Contains(lb.Tags, ownership.ServiceMark(service.UID)) },
			)
			if len(made) > 0 {
				return f.chooseDuplicate(ctx, service, made)
			}
		}
		switch {
		case len(found) > 1:
			return nil, fmt.Errorf("%d load balancers are named %s; delete all but one, or record one in the annotation %s", len(found), name, annotationID)
		case len(found) == 1:
			return found[0], nil
		}
	}
	return nil, nil //nolint:nilnil // absence is an answer here
}

// findPrevious returns the load balancer created for a Service: the recorded one, otherwise the one with its name, or nil.
func (f *finder) findPrevious(ctx context.Context, cluster string, service *v1.Service, recorded string) (*loadBalancer, error) {
	q := withinAge(previousMaxAge)
	if identifier.MatchString(recorded) {
		lb, err := f.loadBalancers.Get(ctx, recorded, q)
		if !errors.Is(err, cloudapi.ErrNotFound) {
			return lb, err
		}
	}
	return f.findByName(ctx, cluster, service, q)
}

// chooseDuplicate chooses among several load balancers created for a Service: one with the address in the status, otherwise with a
// floating address, otherwise a working one.
func (f *finder) chooseDuplicate(ctx context.Context, service *v1.Service, made []*loadBalancer) (*loadBalancer, error) {
	slices.SortFunc(made, func(a, b *loadBalancer) int { return strings.Compare(a.ID, b.ID) })
	rank := map[string]int{}
	for _, lb := range made {
		addresses, err := f.floatingIPs.listAddresses(ctx, lb, withinAge(previousMaxAge))
		if err != nil {
			return nil, err
		}
		switch {
		case slices.ContainsFunc(addresses, func(a string) bool { return showsAddress(service, a) }):
			rank[lb.ID] = 0
		case len(addresses) > 1+len(furtherAddresses(lb)):
			rank[lb.ID] = 1
		case lb.Status != statusError:
			rank[lb.ID] = 2
		default:
			rank[lb.ID] = 3
		}
	}
	return slices.MinFunc(made, func(a, b *loadBalancer) int { return rank[a.ID] - rank[b.ID] }), nil
}

// findRole returns the Service's role; false if it does not use the load balancer. It is for operations other than creation and change.
func (f *finder) findRole(ctx context.Context, cluster string, service *v1.Service, lb *loadBalancer) (role, bool, error) {
	r, d, err := f.decideRole(ctx, cluster, service, lb)
	if err != nil {
		return role{}, false, err
	}
	if d.Verdict == ownership.Refused {
		klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(service), "reason", d.Err().Error())
		return role{}, false, nil
	}
	return r, r.owner || r.hasJoined(lb), nil // a load balancer not yet joined does not count
}

// decideRole returns the Service's role and the owner of a load balancer. Refused means that the name is the Service's, but the owner
// another.
func (f *finder) decideRole(
	ctx context.Context, cluster string, service *v1.Service, lb *loadBalancer,
) (role, ownership.Decision, error) {
	mark, err := f.cluster.Mark(ctx)
	if err != nil {
		return role{}, ownership.Decision{}, err
	}
	r := role{name: loadBalancerName(cluster, service), mark: mark, serviceMark: ownership.ServiceMark(service.UID)}
	own := lb.Name == r.name || lb.Name == legacyName(service) || service.Annotations[annotationID] == "" ||
		slices.Contains(lb.Tags, r.serviceMark)
	moved := clusterDiffers(lb.Name, r.name) && !slices.Contains(lb.Tags, r.name)
	if !own && !moved {
		r.isForeign, err = f.belongsToOtherCluster(ctx, service, lb, r)
		return r, ownership.Decision{}, err
	}
	d, err := f.judge(ctx, service, lb, f.rules(cluster, lb, mark), nil)
	switch {
	case err != nil:
		return role{}, ownership.Decision{}, err
	case d.Verdict != ownership.Refused:
		r.owner = true
		if clusterDiffers(lb.Name, r.name) {
			r.former = lb.Name
		}
	case !own:
		d = ownership.Decision{}
	}
	return r, d, nil
}

// belongsToOtherCluster reports whether the tag with the Service's name belongs to another cluster of the same name: no listener with the
// tag is this cluster's, or nothing has a mark, and neither an address nor a node tells of this cluster.
func (f *finder) belongsToOtherCluster(ctx context.Context, service *v1.Service, lb *loadBalancer, r role) (bool, error) {
	if f.config.LoadBalancer.ShareAcross || !slices.Contains(lb.Tags, r.name) {
		return false, nil
	}
	if ownership.Check("", r.mark, lb.Tags) == nil {
		return f.isUnprovedGuest(ctx, service, lb, r)
	}
	d, err := f.parts.readWhole(ctx, lb.ID)
	if err != nil {
		return false, err
	}
	tagged := func(l listener) bool { return slices.Contains(l.Tags, r.name) }
	return slices.ContainsFunc(d.listeners, tagged) && !slices.ContainsFunc(
		d.listeners, func(l listener) bool { return tagged(l) && r.ownsListener(l) },
	), nil
}

// isUnprovedGuest reports whether the Service's name alone tells that it uses a load balancer without marks.
func (f *finder) isUnprovedGuest(ctx context.Context, service *v1.Service, lb *loadBalancer, r role) (bool, error) {
	if r.mark == "" || slices.Contains(lb.Tags, r.mark) || f.adopt == registry.AdoptAny || len(f.instances.nodes.Nodes()) == 0 {
		return false, nil
	}
	addresses, err := f.floatingIPs.listAddresses(ctx, lb, withinAge(previousMaxAge))
	if err != nil || slices.ContainsFunc(addresses, func(a string) bool { return showsAddress(service, a) }) {
		return false, err
	}
	d, err := f.parts.readWhole(ctx, lb.ID)
	marked := func(l listener) bool { return slices.Contains(l.Tags, r.name) && slices.Contains(l.Tags, r.mark) }
	if err != nil || slices.ContainsFunc(d.listeners, marked) {
		return false, err
	}
	t, err := f.countTargets(ctx, lb, nil)
	return t.All > 0 && t.Ours == 0, err
}

// judge decides who owns a load balancer.
func (f *finder) judge(
	ctx context.Context, service *v1.Service, lb *loadBalancer, rules ownership.Rules, nodes []*v1.Node,
) (ownership.Decision, error) {
	object := ownership.Object{Title: titleOf(lb), ID: lb.ID, Name: lb.Name, Marks: lb.Tags}
	likely := slices.Contains(rules.Likely(service), lb.Name)
	if !slices.Contains(rules.Names(service), lb.Name) && !slices.Contains(lb.Tags, ownership.ServiceMark(service.UID)) {
		all := append(furtherAddresses(lb), lb.VIPAddress)
		for _, a := range all {
			// A private address may exist on another network too, so without the name it proves nothing.
			if ip, err := netip.ParseAddr(a); err == nil && (likely || !ip.IsPrivate()) {
				object.Addresses = append(object.Addresses, a)
			}
		}
		floating, err := f.floatingIPs.findAt(ctx, lb, withinAge(floatingMaxAge))
		if err != nil {
			return ownership.Decision{}, err
		}
		if floating != nil {
			all, object.Addresses = append(all, floating.Address), append(object.Addresses, floating.Address)
		}
		rules.Recorded = func(s *v1.Service) bool { return isRecorded(s, lb, all) }
	}
	d, err := f.cluster.Judge(
		ctx, service, object, rules, func(ctx context.Context) (ownership.Targets, error) { return f.countTargets(ctx, lb, nodes) },
	)
	if err == nil && likely && d.Verdict == ownership.Owned {
		f.ownerUIDs.Store(lb.ID, service.UID)
	}
	return d, err
}

// isRecorded reports whether a Service records a load balancer by more than its ID: by address, port, our own record or a pending clean-up.
func isRecorded(s *v1.Service, lb *loadBalancer, addresses []string) bool {
	address, portID := s.Annotations[annotationAddress], s.Annotations[annotationPortID]
	more := (address != "" && slices.Contains(addresses, address)) || (portID != "" && portID == lb.VIPPortID) ||
		s.Annotations[annotationMade] == lb.ID || ownership.Leaves(s)
	return s.Annotations[annotationID] == lb.ID && more
}

func titleOf(lb *loadBalancer) string { return "load balancer " + lb.ID }

// rules decide which load balancer belongs to a Service. The name alone is weak evidence, because clusters may have the same name.
func (f *finder) rules(cluster string, lb *loadBalancer, mark string) ownership.Rules {
	named := func(s *v1.Service) []string {
		if name := loadBalancerName(cluster, s); len(name) < openstacklimits.Name.Max { // a truncated name may match several Services
			return []string{name}
		}
		return nil
	}
	return ownership.Rules{
		Adopt: f.adopt, Unmarked: !f.config.OwnershipTag, Likely: named,
		Names: func(s *v1.Service) []string {
			names := []string{legacyName(s)}
			if uid, proved := f.ownerUIDs.Load(lb.ID); proved && uid == s.UID {
				names = append(names, named(s)...)
			}
			if name := loadBalancerName(cluster, s); mark != "" && slices.Contains(lb.Tags, mark) && clusterDiffers(lb.Name, name) {
				names = append(names, lb.Name) // the cluster was renamed
			}
			return names
		},
		Record: func(s *v1.Service) string { return s.Annotations[annotationID] },
	}
}

// countTargets counts the members of a load balancer that are nodes of this cluster.
func (f *finder) countTargets(ctx context.Context, lb *loadBalancer, more []*v1.Node) (ownership.Targets, error) {
	var t ownership.Targets
	d, err := f.parts.readWhole(ctx, lb.ID)
	if err != nil {
		return t, err
	}
	ours := map[string]*v1.Node{}
	for _, n := range slices.Concat(more, f.instances.nodes.Nodes()) {
		if _, err := f.config.parseProviderID(n.Spec.ProviderID); err != nil {
			continue // without a server here the Node's own claims prove nothing
		}
		for _, family := range []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol} {
			address, err := f.instances.chooseAddress(ctx, n, family)
			if err != nil {
				return t, err
			}
			ours[address] = n
		}
	}
	for i := range d.pools {
		for _, m := range d.pools[i].members.list() {
			t.All++
			if n := ours[m.Address]; m.Address != "" && n != nil {
				otherNetwork, err := f.instances.isOnOtherNetwork(ctx, n, m)
				if err != nil {
					return t, err
				}
				if !otherNetwork {
					t.Ours++
				}
			}
			if port := int32(m.Port); !slices.Contains(t.Ports, port) { //nolint:gosec // the API bounds ports to 1..65535
				t.Ports = append(t.Ports, port)
			}
		}
	}
	return t, nil
}

// admit returns the role of a Service that may use the load balancer, and findings otherwise.
func (f *finder) admit(ctx context.Context, req services.Request, o observed) (role, []services.Finding, error) {
	r, d, err := f.decideRole(ctx, req.Cluster, req.Service, o.lb)
	if err != nil {
		return role{}, nil, err
	}
	var findings []services.Finding
	if !r.owner && d.Verdict != ownership.Refused {
		if d, findings, err = f.checkSharing(ctx, req, o.lb, r); err != nil {
			return role{}, findings, err
		}
	}
	if d.Verdict == ownership.Refused {
		return role{}, append(findings, services.Refused(req.Service, d)...), d.Err()
	}
	if !r.owner {
		if err := checkShare(req.Service, o, r, f.config.LoadBalancer.MaxShared); err != nil {
			return role{}, append(findings, services.Warning(ownership.EventNotOurs, "%s", err)), err
		}
	}
	return r, findings, nil
}

// checkSharing decides whether a Service may share a load balancer: another Service's needs its agreement, a user's the operator's policy.
// One already shared stays shared, because a controller wrote the tag.
func (f *finder) checkSharing(
	ctx context.Context, req services.Request, lb *loadBalancer, r role,
) (d ownership.Decision, findings []services.Finding, err error) {
	agreed, joined := ownership.Decision{Verdict: ownership.Adopted, Object: titleOf(lb)}, r.hasJoined(lb)
	owner, namespace, name, err := f.findOwner(ctx, req.Cluster, lb, r.mark)
	if err != nil {
		return d, nil, err
	}
	if namespace == "" {
		if joined {
			return agreed, nil, nil
		}
		rules := f.rules(req.Cluster, lb, r.mark)
		rules.Unmarked = false // tags identify the listeners of a guest
		rules.Shares = func(s *v1.Service) bool {
			return s.Namespace == req.Service.Namespace || f.config.LoadBalancer.ShareAcross
		}
		d, err = f.judge(ctx, req.Service, lb, rules, req.Nodes)
		return d, nil, err
	}
	ours := r.mark != "" && slices.Contains(lb.Tags, r.mark)
	if owner != nil && !ours { // the name alone may be another cluster's
		judged, err := f.judge(ctx, owner, lb, f.rules(req.Cluster, lb, r.mark), req.Nodes)
		if err != nil {
			return d, nil, err
		}
		ours = judged.Verdict != ownership.Refused
	}
	ours = ours && ownership.Check("", r.mark, lb.Tags) == nil
	switch {
	case f.config.LoadBalancer.ShareAcross, ours && namespace == req.Service.Namespace,
		ours && owner != nil && allowsShare(owner, req.Service.Namespace):
		return agreed, nil, nil
	case joined:
		return agreed, []services.Finding{services.Warning(eventShared, "%s is shared with Service %s/%s of another namespace or cluster, "+
			"which has not agreed to that; give that one the annotation %s", titleOf(lb), namespace, name, annotationShareWith)}, nil
	}
	who := fmt.Sprintf("Service %s/%s", namespace, name)
	if !ours {
		who += ", which is not of this cluster"
	}
	return ownership.Refuse(titleOf(lb), who, owner, fmt.Sprintf("it is shared within its namespace alone, unless its Service has the "+
		"annotation %s with the namespace %s, or the option share-across-namespaces is true", annotationShareWith, req.Service.Namespace)), nil, nil
}

// allowsShare reports whether the owner allows Services of a namespace to share its load balancer.
func allowsShare(owner *v1.Service, namespace string) bool {
	return slices.Contains(strings.FieldsFunc(owner.Annotations[annotationShareWith], isSeparator), namespace)
}

// checkShare returns an error if the Service cannot share the load balancer.
func checkShare(service *v1.Service, o observed, r role, maxShared int) error {
	lb := o.lb
	users := 0
	for _, t := range lb.Tags {
		if strings.HasPrefix(t, namePrefix) {
			users++
		}
	}
	switch {
	case !o.features.hasTags():
		return errors.New("sharing a load balancer needs version 2.5 of Octavia's API, and this cloud's is older; remove the annotation " + annotationID)
	case o.settings.internal:
		return fmt.Errorf("an internal Service cannot share load balancer %s; remove the annotation %s or %s", lb.ID, annotationInternal, annotationID)
	case !slices.Contains(lb.Tags, r.name) && users >= maxShared:
		return fmt.Errorf("load balancer %s is already shared with %d Services, which max-shared-lb allows at most; Service %s/%s needs another one", lb.ID, users, service.Namespace, service.Name)
	}
	return nil
}

func isSeparator(r rune) bool { return r == ',' || r == ' ' }

// findOwner returns the Service that a load balancer was created for, or only the namespace and name from the load balancer's name. Both
// are empty for a user's load balancer.
func (f *finder) findOwner(
	ctx context.Context, cluster string, lb *loadBalancer, mark string,
) (owner *v1.Service, namespace, name string, err error) {
	all, err := f.cluster.Services(ctx)
	if err != nil {
		return nil, "", "", fmt.Errorf("looking for the owner of load balancer %s: %w", lb.ID, err)
	}
	rules := f.rules(cluster, lb, mark)
	for _, s := range all {
		if slices.Contains(lb.Tags, ownership.ServiceMark(s.UID)) || slices.Contains(slices.Concat(rules.Names(s), rules.Likely(s)), lb.Name) {
			return s, s.Namespace, s.Name, nil
		}
	}
	_, rest := splitName(lb.Name)
	namespace, name, _ = strings.Cut(strings.TrimPrefix(rest, "_"), "_")
	return nil, namespace, name, nil
}

// isOwnedByAnother reports whether a shared load balancer has an existing owner, or one in another cluster, although its tag is missing. A
// controller without tags may have created it, or the tags were overwritten.
func (f *finder) isOwnedByAnother(ctx context.Context, cluster string, lb *loadBalancer, r role) (bool, error) {
	if r.owner {
		return false, nil
	}
	if ownership.Foreign(r.mark, lb.Tags) {
		return true, nil
	}
	owner, _, _, err := f.findOwner(ctx, cluster, lb, r.mark)
	if err != nil || owner == nil {
		return false, err
	}
	if ownership.Leaves(owner) && !contract.Keeps(owner) { // it has left, or will find that nothing is there
		return false, nil
	}
	id := owner.Annotations[annotationID]
	return ownership.MayHave(owner) && loadBalancerName(cluster, owner) != r.name && (id == "" || id == lb.ID), nil
}

// isRenewable reports whether a load balancer in ERROR was created for this Service alone and never served. Its mark and our record must
// say so, and neither the Service nor a floating address may show earlier use.
func (f *finder) isRenewable(ctx context.Context, service *v1.Service, lb *loadBalancer, r role) (bool, error) {
	fresh := len(service.Status.LoadBalancer.Ingress) == 0 && service.Annotations[annotationAddress] == ""
	made := service.Annotations[annotationMade] == lb.ID && slices.Contains(lb.Tags, r.serviceMark)
	if !fresh || !made || !r.owner || !isMadeByController(lb, service) || isUsedByOthers(lb, r) {
		return false, nil
	}
	floating, err := f.floatingIPs.findAt(ctx, lb, inventory.Query{MaxUnlistedAge: newMaxAge})
	return err == nil && floating == nil, err
}

// addIdentity adds the desired name and tags of a load balancer.
func addIdentity(o observed, marks bool, want *wantedState) (findings []services.Finding) {
	lb, r := o.lb, o.role
	tags := slices.Clone(lb.Tags)
	if r.owner && clusterDiffers(lb.Name, r.name) {
		want.name = &r.name
		tags = slices.DeleteFunc(tags, func(t string) bool { return t == lb.Name })
		findings = []services.Finding{services.Warning(eventRename,
			"load balancer %s and its parts are renamed from %s to %s, for the cluster has another name", lb.ID, lb.Name, r.name)}
	}
	if o.features.hasTags() && !slices.Contains(tags, r.name) {
		tags = append(slices.DeleteFunc(tags, func(t string) bool { return t == "" }), r.name)
	}
	stale := func(t string) bool { return strings.HasPrefix(t, servicePrefix) && t != r.serviceMark }
	if r.owner && slices.ContainsFunc(tags, stale) {
		tags = slices.DeleteFunc(tags, stale) // of a deleted Service of the same name
	}
	if o.features.hasTags() && !services.SameSet(tags, lb.Tags) {
		want.tags = withMarks(tags, r, marks)
	}
	return findings
}

// withMarks adds the marks to the tags of an owned load balancer. They are only written together with other tags.
func withMarks(tags []string, r role, marks bool) []string {
	if !r.owner || !marks {
		return tags
	}
	for _, m := range []string{r.mark, r.serviceMark} {
		if m != "" && !slices.Contains(tags, m) {
			tags = append(tags, m)
		}
	}
	return tags
}
