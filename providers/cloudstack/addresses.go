package cloudstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file acquires and releases public addresses. Not all user roles may tag them, so the Service records its address: before the
// request, after it, and before the last rule is deleted. Only sealed records count. Releasing an address deletes all rules at it, so
// nobody else may have any there.

// addressAcquisition acquires an address for a Service, or finds the requested one.
func (r *reconciler) addressAcquisition(_ services.Request, d spec) lbChange {
	what := "public address"
	if d.wanted != "" {
		what += " " + d.wanted
	}
	c := newChange(contract.PlanCreate, what, "in network "+d.network.ID, func(ctx context.Context, q *services.Request, lb *loadBalancer) error {
		return r.api.jobs.runInNetwork(ctx, d.network.key(), func() error {
			a, err := r.acquireAddress(ctx, q, d)
			if err != nil {
				return err
			}
			lb.address = a
			return nil
		})
	})
	c.Replan = true
	return withCompare(c, nil, map[string]any{"ipaddress": cmp.Or(d.wanted, "any"), "networkid": d.network.ID})
}

// acquireAddress needs the lock of the network.
func (r *reconciler) acquireAddress(ctx context.Context, q *services.Request, d spec) (*address, error) {
	a, err := r.recordedAddress(ctx, q, d.network)
	switch {
	case err != nil:
		return nil, err
	case a != nil && r.isAnsweredRequest(q.Service):
		q.Report(services.Notice(eventAddressKept, "address %s is used, and stays when the Service goes: %s", a.IP, wasAnswered))
		return a, r.noteText(ctx, q, r.withSeal(q.Service, givenPrefix+a.ID, *a), false)
	case a != nil && (d.wanted == "" || d.wanted == a.IP): // otherwise the request has changed, and the former address is unused
		return a, r.note(ctx, q, *a, d.wanted != "")
	}
	if d.wanted != "" {
		found, err := r.findRequested(ctx, d)
		if err != nil {
			q.Report(services.Warning(eventAddress, "%v", err))
			return nil, err
		}
		if !found.isFree() {
			return found, nil
		}
	}
	if err := r.noteText(ctx, q, r.withSeal(q.Service, askedPrefix+r.cloudTime().UTC().Format(time.RFC3339), address{}), false); err != nil {
		return nil, err
	}
	made, err := r.associateAddress(ctx, d)
	if err != nil {
		return nil, r.explainRefusal(ctx, q, err)
	}
	if r.hasOtherRecord(ctx, q, made.ID) {
		c := change{
			network: d.network.key(), owner: d.name, what: "releasing address " + made.IP, command: "disassociateIpAddress",
			params: params{"id": made.ID},
		}
		err := r.api.jobs.run(ctx, c)
		r.addresses.Invalidate(made.ID)
		return nil, errors.Join(err, errTaken)
	}
	return made, r.note(ctx, q, *made, d.wanted != "")
}

// explainRefusal reports what the user can do about a failed request. A refused request is removed from the record.
func (r *reconciler) explainRefusal(ctx context.Context, q *services.Request, err error) error {
	if cloudapi.Refused(err) && !errors.Is(err, cloudapi.ErrTransient) {
		err = errors.Join(err, r.noteText(ctx, q, "", false))
	}
	if errors.Is(err, cloudapi.ErrQuota) || errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrConflict) {
		q.Report(services.Warning(eventAddress, "%v", err))
	}
	return err
}

// errTaken ends one of two processes that serve a Service at the same time.
var errTaken = errors.New("another process has taken an address for this Service meanwhile; it is tried again")

// hasOtherRecord reports whether the Service already records another address, written by a concurrent process. A failed read shows again
// when the address is recorded.
func (r *reconciler) hasOtherRecord(ctx context.Context, q *services.Request, id string) bool {
	if r.kube == nil {
		return false
	}
	// List instead of get, because the program may not get Services.
	list, err := r.kube.CoreV1().Services(q.Service.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + q.Service.Name})
	if err != nil {
		return false
	}
	at := slices.IndexFunc(list.Items, func(s v1.Service) bool { return s.UID == q.Service.UID })
	if at < 0 {
		return false
	}
	known := recordOf(list.Items[at].Annotations[annotationRecord])
	return known.id != "" && known.id != id
}

// cloudTime returns the time of the cloud's clock.
func (r *reconciler) cloudTime() time.Time { return time.Now().Add(r.api.clockOffset()) }

func (r *reconciler) associateAddress(ctx context.Context, d spec) (*address, error) {
	project, err := r.api.project(ctx)
	if err != nil {
		return nil, err
	}
	made := &address{}
	c := change{
		network: d.network.key(), owner: d.name, what: "taking a public address", command: "associateIpAddress", key: "ipaddress", out: made,
		params: params{"ipaddress": d.wanted, "projectid": project, "networkid": d.network.ID},
	}
	if d.network.VPC != "" {
		c.params["vpcid"], c.params["networkid"] = d.network.VPC, ""
	}
	err = r.api.jobs.run(ctx, c)
	if err == nil && (made.ID == "" || made.IP == "" || (d.wanted != "" && made.IP != d.wanted)) {
		err = cloudapi.Unclear(c.what, "the answer is about another address")
	}
	if err != nil {
		r.addresses.InvalidateAll()
		return nil, err
	}
	r.addresses.Put(*made)
	return made, nil
}

// findRequested finds the requested address, whoever has it.
func (r *reconciler) findRequested(ctx context.Context, d spec) (*address, error) {
	l := listing{what: "looking for address " + d.wanted, command: "listPublicIpAddresses", key: "publicipaddress", scope: true}
	all, _, err := list[address](ctx, r.api, l, params{"ipaddress": d.wanted, "allocatedonly": "false"})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(a address) bool { return a.IP != d.wanted })
	if len(all) != 1 {
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: l.what, Message: fmt.Sprintf("the account sees %d addresses %s, and needs one", len(all), d.wanted)}
	}
	a := all[0]
	switch {
	case a.isFree():
	case !a.isReady():
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("address %s is %s", a.IP, a.State), lookAgain)
	case a.StaticNAT:
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: l.what, Message: "it is the static NAT address of a virtual machine; name another one"}
	case !a.belongsTo(d.network):
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: l.what, Message: "it is not of network " + d.network.ID + ", which the nodes are in; name another one"}
	}
	return &a, nil
}

// recordedAddress returns the recorded address that is not used yet, or nil. If the response to a request was lost, it searches for the
// address acquired since then.
func (r *reconciler) recordedAddress(ctx context.Context, q *services.Request, n network) (*address, error) {
	service := q.Service
	s, _, _ := parseSettings(service)
	if known := recordOf(s.Record); known.id != "" {
		a, err := r.addresses.Get(ctx, known.id, inventory.Query{})
		if errors.Is(err, cloudapi.ErrNotFound) || (err == nil && (a.isFree() || a.StaticNAT || !a.belongsTo(n))) {
			return nil, nil //nolint:nilnil // there is none
		}
		if err == nil && r.sealedRecord(service, a).id == "" {
			q.Report(services.Notice(eventAddressKept, "address %s is not used, and stays: annotation %s %s", a.IP, annotationRecord, notOurs))
			return nil, nil //nolint:nilnil // there is none
		}
		return &a, err
	}
	known := r.sealedRecord(service, address{})
	if known.asked.IsZero() {
		return nil, nil //nolint:nilnil // there is none
	}
	return r.findLostAddress(ctx, service, known.asked, n.key(), s.requestedAddress(service))
}

// findLostAddress returns an address that was acquired since the given time in a network and is unused and unknown, or nil.
func (r *reconciler) findLostAddress(ctx context.Context, service *v1.Service, since time.Time, key, wanted string) (*address, error) {
	all, err := r.addresses.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	others, err := r.cluster.Services(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b address) int { return strings.Compare(a.Allocated+a.ID, b.Allocated+b.ID) })
	for _, a := range all {
		known := func(s *v1.Service) bool { return s.UID != service.UID && mentionsAddress(s, a) }
		if !a.mayResultFrom(since, key, wanted) || slices.ContainsFunc(others, known) {
			continue
		}
		if !a.isReady() {
			return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("address %s is %s", a.IP, a.State), lookAgain)
		}
		return &a, nil
	}
	if r.cloudTime().Sub(since) < creationShows {
		return nil, cloudproviderapi.NewRetryError("it is not known yet whether CloudStack has given an address; it is looked for", lookAgain)
	}
	return nil, nil //nolint:nilnil // none was taken
}

// mayResultFrom reports whether an address may result from a request at the given time. An empty key matches any network.
func (a address) mayResultFrom(since time.Time, key, wanted string) bool {
	coming := a.NetworkID == "" && a.VPC == "" && !a.isReady() // its network is not assigned yet
	switch {
	case a.isReserved(), a.HasRules == nil, *a.HasRules:
		return false
	case !a.isAcquiredSince(since), a.isAcquiredSince(since.Add(creationTakes)):
		return false
	}
	return (key == "" || coming || a.key() == key) && (wanted == "" || a.IP == wanted)
}

// mentionsAddress reports whether a Service records, requests or shows an address.
func mentionsAddress(s *v1.Service, a address) bool {
	set, _, _ := parseSettings(s)
	return recordOf(set.Record).id == a.ID || set.requestedAddress(s) == a.IP || shows(s, a.IP)
}

// unusedAddress returns the address acquired for a Service without rules, or nil.
func (r *reconciler) unusedAddress(ctx context.Context, service *v1.Service, s settings) (*address, error) {
	known := recordOf(s.Record)
	if !r.sealedRecord(service, address{}).asked.IsZero() && !s.KeepIP {
		key, err := r.keyOfNodes(ctx)
		if err != nil {
			return nil, err
		}
		return r.findLostAddress(ctx, service, known.asked, key, s.requestedAddress(service))
	}
	if known.id == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	a, err := r.addresses.Get(ctx, known.id, inventory.Query{MaxAge: observedMaxAge, MaxMissAge: observedMaxAge})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), err == nil && (a.isFree() || !r.isAcquiredFor(service, s, nil, a)):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, err
	}
	if late, err := r.leftoverRules(ctx, service, a); err != nil || len(late) > 0 {
		return &a, err
	}
	why, err := r.reasonToKeep(ctx, a)
	if err != nil || why == "" {
		return &a, err
	}
	// The last rule may have been deleted since the address was read.
	a, err = r.addresses.Get(ctx, a.ID, inventory.Query{})
	if err == nil {
		why, err = r.reasonToKeep(ctx, a)
	}
	if err != nil || why != "" {
		return nil, cloudapi.NotAbsence(err)
	}
	return &a, nil
}

// keyOfNodes returns the key of the network that a load balancer of all nodes would use; "" if unknown.
func (r *reconciler) keyOfNodes(ctx context.Context) (string, error) {
	machines, _, err := r.instances.machinesOf(ctx, r.instances.nodes.Nodes())
	if err != nil {
		return "", err
	}
	var all []vm
	for _, m := range machines {
		all = append(all, m.vm)
	}
	id := networkOf(all)
	if id == "" {
		return "", nil
	}
	n, err := r.networks.Get(ctx, id, inventory.Query{MaxAge: networkMaxAge})
	return n.key(), cloudapi.NotAbsence(err)
}

// addressRelease releases an acquired address, unless somebody else uses it by then.
func (r *reconciler) addressRelease(a address) lbChange {
	c := newChange(contract.PlanDelete, "public address "+a.IP, "", func(ctx context.Context, q *services.Request, _ *loadBalancer) error {
		return r.api.jobs.runInNetwork(ctx, a.key(), func() error { return r.releaseAddress(ctx, q, a) })
	})
	return withCompare(c, a, nil)
}

func (r *reconciler) releaseAddress(ctx context.Context, q *services.Request, a address) error {
	if r.isAnsweredRequest(q.Service) {
		q.Report(services.Notice(eventAddressKept, "address %s stays: %s", a.IP, wasAnswered))
		return r.noteText(ctx, q, "", false)
	}
	late, err := r.leftoverRules(ctx, q.Service, a)
	if err != nil {
		return err
	}
	for _, f := range late {
		c := change{
			network: a.key(), owner: loadBalancerName(q.Cluster, q.Service),
			what: "deleting a firewall rule of " + a.IP, command: "deleteFirewallRule", params: params{"id": f.ID},
		}
		if err := r.api.jobs.run(ctx, c); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return err
		}
		r.firewall.Forget(f.ID)
	}
	now, err := r.addresses.Get(ctx, a.ID, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), err == nil && now.isFree():
		return r.noteText(ctx, q, "", false)
	case err != nil:
		return err
	case now.State == "Releasing":
		return cloudproviderapi.NewRetryError("CloudStack is still releasing address "+a.IP, lookAgain)
	}
	why, err := r.reasonToKeep(ctx, now)
	if err != nil {
		return err
	}
	if why != "" {
		q.Report(services.Notice(eventAddressKept, "address %s stays: %s", a.IP, why))
		given, err := r.handOver(ctx, q.Service, a)
		if err != nil || !given {
			return err
		}
		return r.noteText(ctx, q, "", false)
	}
	c := change{
		network: a.key(), owner: loadBalancerName(q.Cluster, q.Service), what: "releasing address " + a.IP,
		command: "disassociateIpAddress", params: params{"id": a.ID},
	}
	if err := r.api.jobs.run(ctx, c); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		r.addresses.Invalidate(a.ID)
		return err
	}
	r.addresses.Invalidate(a.ID) // not Forget: an address keeps its ID when it is acquired again
	return r.noteText(ctx, q, "", false)
}

// handOver moves the record of the address to another Service that still uses it, so that the last user releases it. A Service that is
// being deleted too has already planned without the record, so this one waits for it.
func (r *reconciler) handOver(ctx context.Context, gone *v1.Service, a address) (given bool, err error) {
	rules, err := r.rules.Find(ctx, indexAddress, a.ID, inventory.Query{})
	if err != nil || len(rules) == 0 {
		return false, err
	}
	heirs, err := r.ownersOf(ctx, rules, gone)
	if err != nil || len(heirs) == 0 {
		return false, err
	}
	heir := heirs[0]
	if at := slices.IndexFunc(heirs, func(s *v1.Service) bool { return !ownership.Leaves(s) }); at >= 0 {
		heir = heirs[at]
		if err := r.note(ctx, &services.Request{Purpose: services.Delete, Service: heir}, a, false); err != nil {
			return false, err
		}
		if heirs, err = r.ownersOf(ctx, rules, gone); err != nil {
			return false, err
		}
		if slices.ContainsFunc(heirs, func(s *v1.Service) bool { return s.UID == heir.UID && !ownership.Leaves(s) }) {
			return true, nil
		}
	}
	text := fmt.Sprintf("address %s waits for Service %s/%s, which goes as well and has rules at it", a.IP, heir.Namespace, heir.Name)
	return false, cloudproviderapi.NewRetryError(text, lookAgain)
}

// ownersOf returns the other Services, of any type, that own the rules, as read from the API server.
func (r *reconciler) ownersOf(ctx context.Context, rules []rule, gone *v1.Service) (owners []*v1.Service, err error) {
	if r.kube == nil {
		return nil, nil
	}
	list, err := r.kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the Services that use an address: %w", err)
	}
	for i := range list.Items {
		s := &list.Items[i]
		name := loadBalancerName("", s)
		if s.UID != gone.UID && slices.ContainsFunc(rules, func(found rule) bool { return found.owner() == name }) {
			owners = append(owners, s)
		}
	}
	return owners, nil
}

// leftoverRules returns firewall rules for the Service's ports at its address without a load balancer rule. They come from lost creations
// that took effect late.
func (r *reconciler) leftoverRules(ctx context.Context, service *v1.Service, a address) (list []firewallRule, err error) {
	if a.VPC != "" || a.HasRules == nil || !*a.HasRules {
		now, err := r.addresses.Get(ctx, a.ID, inventory.Query{})
		if err != nil || a.VPC != "" || now.HasRules == nil || !*now.HasRules {
			return nil, nil //nolint:nilerr // the caller reads the address itself
		}
	}
	rules, err := r.rules.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	all, err := r.firewall.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		ours := slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool {
			return f.opens(strings.ToLower(string(p.Protocol)), int(p.Port))
		})
		needed := slices.ContainsFunc(rules, func(o rule) bool { return o.AddressID == a.ID && o.port() == f.Start })
		if f.AddressID == a.ID && ours && !needed {
			list = append(list, f)
		}
	}
	return list, nil
}

// reasonToKeep returns why an address must stay, or "".
func (r *reconciler) reasonToKeep(ctx context.Context, a address) (why string, err error) {
	switch {
	case a.SourceNAT:
		return "it is the source NAT address of the network", nil
	case a.StaticNAT:
		return "it is the static NAT address of a virtual machine", nil
	case a.System:
		return "it belongs to the system", nil
	case a.HasRules != nil && *a.HasRules:
		return "others have rules at it", nil
	case a.HasRules != nil:
		return "", nil
	}
	for _, l := range []listing{
		{what: "listing the load balancer rules of " + a.IP, command: "listLoadBalancerRules", key: "loadbalancerrule", scope: true},
		{what: "listing the port forwarding rules of " + a.IP, command: "listPortForwardingRules", key: "portforwardingrule", scope: true},
		{what: "listing the firewall rules of " + a.IP, command: "listFirewallRules", key: "firewallrule", scope: true},
	} {
		key := "ipaddressid"
		if l.command == "listLoadBalancerRules" {
			key = "publicipid"
		}
		found, _, err := list[struct{}](ctx, r.api, l, params{key: a.ID})
		switch {
		case isDenied(err):
			return "the role of the user cannot tell whether others use it", nil
		case err != nil:
			return "", err
		case len(found) > 0:
			return "others have rules at it", nil
		}
	}
	return "", nil
}

func (a *api) rules(ctx context.Context) ([]rule, int, error) {
	l := listing{what: "listing load balancer rules", command: "listLoadBalancerRules", key: "loadbalancerrule", scope: true}
	return listOnce(ctx, a, l, nil, func(r rule) string { return r.ID })
}

func (a *api) firewallRules(ctx context.Context) ([]firewallRule, int, error) {
	l := listing{what: "listing firewall rules", command: "listFirewallRules", key: "firewallrule", scope: true}
	return listOnce(ctx, a, l, nil, func(f firewallRule) string { return f.ID })
}

func (a *api) addresses(ctx context.Context) ([]address, int, error) {
	l := listing{what: "listing public addresses", command: "listPublicIpAddresses", key: "publicipaddress", scope: true}
	return listOnce(ctx, a, l, nil, func(a address) string { return a.ID })
}

func (a *api) networks(ctx context.Context) ([]network, int, error) {
	l := listing{what: "listing networks", command: "listNetworks", key: "network", scope: true}
	return listOnce(ctx, a, l, nil, func(n network) string { return n.ID })
}

// readObject reads an object. One that is not shown may only be invisible to the user; callers for which that matters must check.
func readObject[T any](ctx context.Context, a *api, l listing, id string, idOf func(T) string, p params) (found T, err error) {
	p["id"] = id
	all, _, err := list[T](ctx, a, l, p)
	switch {
	case err != nil:
		return found, err
	case len(all) == 0:
		return found, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: l.what, Message: "it is not shown"}
	case len(all) > 1 || idOf(all[0]) != id:
		return found, cloudapi.Unclear(l.what, "the answer is about something else")
	}
	return all[0], nil
}

func (a *api) rule(ctx context.Context, id string) (rule, error) {
	l := listing{what: "reading load balancer rule " + id, command: "listLoadBalancerRules", key: "loadbalancerrule", scope: true}
	return readObject(ctx, a, l, id, func(r rule) string { return r.ID }, params{})
}

func (a *api) address(ctx context.Context, id string) (address, error) {
	l := listing{what: "reading public address " + id, command: "listPublicIpAddresses", key: "publicipaddress", scope: true}
	return readObject(ctx, a, l, id, func(a address) string { return a.ID }, params{"allocatedonly": "false"})
}

func (a *api) network(ctx context.Context, id string) (network, error) {
	l := listing{what: "reading network " + id, command: "listNetworks", key: "network", scope: true}
	return readObject(ctx, a, l, id, func(n network) string { return n.ID }, params{})
}
