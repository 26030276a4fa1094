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

// This file acquires and releases public addresses. Not all user roles may tag them, so a sealed record on the Service shows which address
// is its own.

// publicIPs acquires and releases addresses.
type publicIPs struct {
	*inventories
	cluster   *ownership.Cluster
	instances *instances
	records   *records
}

// acquisition acquires an address for a Service, or finds the requested one.
func (p *publicIPs) acquisition(n network, wanted string) lbChange {
	what := "public address"
	if wanted != "" {
		what += " " + wanted
	}
	fields := map[string]any{"ipaddress": cmp.Or(wanted, "any"), "networkid": n.ID}
	c := newChange(contract.PlanCreate, what, "in network "+n.ID, nil, fields, func(ctx context.Context, req *services.Request, lb *observed) error {
		return p.api.jobs.runInNetwork(ctx, n.key(), func() error {
			a, err := p.acquire(ctx, req, lb)
			if err == nil {
				lb.address = a
			}
			return err
		})
	})
	c.Replan = true
	return c
}

// acquire needs the lock of the network.
func (p *publicIPs) acquire(ctx context.Context, req *services.Request, lb *observed) (*address, error) {
	wanted := lb.settings.Address
	a, err := p.recordedAddress(ctx, req, lb.network, wanted)
	switch {
	case err != nil:
		return nil, err
	case a != nil && p.records.isAnsweredRequest(req.Service):
		req.Report(services.Notice(eventAddressKept, "address %s is used, and stays when the Service goes: %s", a.IP, textFormerRecord))
		return a, p.records.note(ctx, req, keepPrefix+a.ID, *a, false)
	case a != nil && (wanted == "" || wanted == a.IP): // otherwise the request has changed, and the former address is unused
		return a, p.records.noteAcquired(ctx, req, *a, wanted != "")
	}
	if wanted != "" {
		found, err := p.findRequested(ctx, lb.network, wanted)
		if err != nil {
			req.Report(services.Warning(eventAddress, "%v", err))
			return nil, err
		}
		if !found.isFree() {
			return found, nil
		}
	}
	if err := p.records.note(ctx, req, requestPrefix+p.cloudTime().UTC().Format(time.RFC3339), address{}, false); err != nil {
		return nil, err
	}
	made, err := p.associate(ctx, lb, wanted)
	if err != nil {
		return nil, p.explainRefusal(ctx, req, err)
	}
	if p.recordsOtherAddress(ctx, req, made.ID) {
		return nil, errors.Join(p.disassociate(ctx, lb.network.key(), lb.name, *made), errTaken)
	}
	return made, p.records.noteAcquired(ctx, req, *made, wanted != "")
}

// explainRefusal reports what the user can do about a failed request. A refused request is removed from the record.
func (p *publicIPs) explainRefusal(ctx context.Context, req *services.Request, err error) error {
	if cloudapi.Refused(err) && !errors.Is(err, cloudapi.ErrTransient) {
		err = errors.Join(err, p.records.remove(ctx, req))
	}
	if errors.Is(err, cloudapi.ErrQuota) || errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrConflict) {
		req.Report(services.Warning(eventAddress, "%v", err))
	}
	return err
}

// errTaken ends one of two processes that serve a Service at the same time.
var errTaken = errors.New("another process has taken an address for this Service meanwhile; it is tried again")

// recordsOtherAddress reports whether a concurrent process has recorded another address on the Service. A failed read is reported later,
// when the address is recorded.
func (p *publicIPs) recordsOtherAddress(ctx context.Context, req *services.Request, id string) bool {
	if p.records.kube == nil {
		return false
	}
	// List instead of get, because the program may not get Services.
	list, err := p.records.kube.CoreV1().Services(req.Service.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + req.Service.Name})
	if err != nil {
		return false
	}
	at := slices.IndexFunc(list.Items, func(s v1.Service) bool { return s.UID == req.Service.UID })
	if at < 0 {
		return false
	}
	known := recordOf(&list.Items[at])
	return known.id != "" && known.id != id
}

// cloudTime returns the time of the cloud's clock.
func (p *publicIPs) cloudTime() time.Time { return time.Now().Add(p.api.clockOffset()) }

func (p *publicIPs) associate(ctx context.Context, lb *observed, wanted string) (*address, error) {
	project, err := p.api.project(ctx)
	if err != nil {
		return nil, err
	}
	made := &address{}
	c := lb.command("taking a public address", "associateIpAddress", params{"ipaddress": wanted, "projectid": project, "networkid": lb.network.ID})
	c.key, c.out = "ipaddress", made
	if lb.network.VPC != "" {
		c.params["vpcid"], c.params["networkid"] = lb.network.VPC, ""
	}
	err = p.api.jobs.runLocked(ctx, c)
	if err == nil && (made.ID == "" || made.IP == "" || (wanted != "" && made.IP != wanted)) {
		err = cloudapi.Unclear(c.what, "the answer is about another address")
	}
	if err != nil {
		p.addresses.InvalidateAll()
		return nil, err
	}
	p.addresses.Put(*made)
	return made, nil
}

// findRequested finds the requested address, whoever has it.
func (p *publicIPs) findRequested(ctx context.Context, n network, wanted string) (*address, error) {
	l := listing{what: "looking for address " + wanted, command: "listPublicIpAddresses", key: "publicipaddress", scope: true}
	all, _, err := list[address](ctx, p.api, l, params{"ipaddress": wanted, "allocatedonly": "false"})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(a address) bool { return a.IP != wanted })
	if len(all) != 1 {
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: l.what, Message: fmt.Sprintf("the account sees %d addresses %s, and needs one", len(all), wanted)}
	}
	a := all[0]
	switch {
	case a.isFree():
	case !a.isReady():
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("address %s is %s", a.IP, a.State), lookAgain)
	case a.StaticNAT:
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: l.what, Message: "it is the static NAT address of a virtual machine; name another one"}
	case !a.belongsTo(n):
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: l.what, Message: "it is not of network " + n.ID + ", which the nodes are in; name another one"}
	}
	return &a, nil
}

// recordedAddress returns the recorded address that is not used yet, or nil. If the response to a request was lost, it searches for the
// address acquired since then.
func (p *publicIPs) recordedAddress(ctx context.Context, req *services.Request, n network, wanted string) (*address, error) {
	service := req.Service
	if known := recordOf(service); known.id != "" {
		a, err := p.addresses.Get(ctx, known.id, inventory.Query{})
		if errors.Is(err, cloudapi.ErrNotFound) || (err == nil && (a.isFree() || a.StaticNAT || !a.belongsTo(n))) {
			return nil, nil //nolint:nilnil // there is none
		}
		if err == nil && p.records.findSealed(service, a).id == "" {
			req.Report(services.Notice(eventAddressKept, "address %s is not used, and stays: annotation %s %s", a.IP, annotationRecord, textNotOurs))
			return nil, nil //nolint:nilnil // there is none
		}
		return &a, err
	}
	known := p.records.findSealed(service, address{})
	if known.requestedAt.IsZero() {
		return nil, nil //nolint:nilnil // there is none
	}
	return p.findLostAddress(ctx, service, known.requestedAt, n.key(), wanted)
}

// findLostAddress returns an address that was acquired since the given time in a network and is unused and unknown, or nil.
func (p *publicIPs) findLostAddress(ctx context.Context, service *v1.Service, since time.Time, key, wanted string) (*address, error) {
	all, err := p.addresses.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	others, err := p.cluster.Services(ctx)
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
	if p.cloudTime().Sub(since) < creationShows {
		return nil, cloudproviderapi.NewRetryError("it is not known yet whether CloudStack has given an address; it is looked for", lookAgain)
	}
	return nil, nil //nolint:nilnil // none was taken
}

// mayResultFrom reports whether an address may result from a request at the given time. An empty key matches any network.
func (a address) mayResultFrom(since time.Time, key, wanted string) bool {
	pending := a.NetworkID == "" && a.VPC == "" && !a.isReady() // its network is not assigned yet
	switch {
	case a.isReserved(), a.HasRules == nil, *a.HasRules:
		return false
	case !a.isAcquiredSince(since), a.isAcquiredSince(since.Add(maxCreationDelay)):
		return false
	}
	return (key == "" || pending || a.key() == key) && (wanted == "" || a.IP == wanted)
}

// mentionsAddress reports whether a Service records, requests or shows an address.
func mentionsAddress(s *v1.Service, a address) bool {
	return recordOf(s).id == a.ID || strings.TrimSpace(s.Annotations[annotationAddress]) == a.IP ||
		strings.TrimSpace(s.Spec.LoadBalancerIP) == a.IP || statusShows(s, a.IP)
}

// unusedAddress returns the address acquired for a Service without rules, or nil.
func (p *publicIPs) unusedAddress(ctx context.Context, service *v1.Service, s settings) (*address, error) {
	known := recordOf(service)
	if !p.records.findSealed(service, address{}).requestedAt.IsZero() && !s.KeepIP {
		key, err := p.networkKeyOfNodes(ctx)
		if err != nil {
			return nil, err
		}
		return p.findLostAddress(ctx, service, known.requestedAt, key, s.Address)
	}
	if known.id == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	a, err := p.addresses.Get(ctx, known.id, inventory.Query{MaxAge: observedMaxAge, MaxMissAge: observedMaxAge})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), err == nil && (a.isFree() || !p.records.isAcquiredFor(service, s, nil, a)):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, err
	}
	if leftovers, err := p.leftoverRules(ctx, service, a); err != nil || len(leftovers) > 0 {
		return &a, err
	}
	why, err := p.reasonToKeep(ctx, a)
	if err != nil || why == "" {
		return &a, err
	}
	// The last rule may have been deleted since the address was read.
	a, err = p.addresses.Get(ctx, a.ID, inventory.Query{})
	if err == nil {
		why, err = p.reasonToKeep(ctx, a)
	}
	if err != nil || why != "" {
		return nil, cloudapi.NotAbsence(err)
	}
	return &a, nil
}

// networkKeyOfNodes returns the key of the network that a load balancer of all nodes would use; "" if unknown.
func (p *publicIPs) networkKeyOfNodes(ctx context.Context) (string, error) {
	machines, _, err := p.instances.machinesOf(ctx, p.instances.nodes.Nodes())
	if err != nil {
		return "", err
	}
	id := networkOf(machines)
	if id == "" {
		return "", nil
	}
	n, err := p.networks.Get(ctx, id, inventory.Query{MaxAge: networkMaxAge})
	return n.key(), cloudapi.NotAbsence(err)
}

// release releases an acquired address, unless somebody else uses it by then.
func (p *publicIPs) release(a address) lbChange {
	return newChange(contract.PlanDelete, "public address "+a.IP, "", a, nil, func(ctx context.Context, req *services.Request, _ *observed) error {
		return p.api.jobs.runInNetwork(ctx, a.key(), func() error { return p.releaseUnused(ctx, req, a) })
	})
}

func (p *publicIPs) releaseUnused(ctx context.Context, req *services.Request, a address) error {
	if p.records.isAnsweredRequest(req.Service) {
		req.Report(services.Notice(eventAddressKept, "address %s stays: %s", a.IP, textFormerRecord))
		return p.records.remove(ctx, req)
	}
	leftovers, err := p.leftoverRules(ctx, req.Service, a)
	if err != nil {
		return err
	}
	for _, f := range leftovers {
		c := jobRequest{
			network: a.key(), owner: loadBalancerName(req.Cluster, req.Service),
			what: "deleting a firewall rule of " + a.IP, command: "deleteFirewallRule", params: params{"id": f.ID},
		}
		if err := p.api.jobs.runLocked(ctx, c); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return err
		}
		p.firewall.Forget(f.ID)
	}
	now, err := p.addresses.Get(ctx, a.ID, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), err == nil && now.isFree():
		return p.records.remove(ctx, req)
	case err != nil:
		return err
	case now.State == "Releasing":
		return cloudproviderapi.NewRetryError("CloudStack is still releasing address "+a.IP, lookAgain)
	}
	why, err := p.reasonToKeep(ctx, now)
	if err != nil {
		return err
	}
	if why != "" {
		req.Report(services.Notice(eventAddressKept, "address %s stays: %s", a.IP, why))
		handedOver, err := p.handOver(ctx, req.Service, a)
		if err != nil || !handedOver {
			return err
		}
		return p.records.remove(ctx, req)
	}
	err = p.disassociate(ctx, a.key(), loadBalancerName(req.Cluster, req.Service), a)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	return p.records.remove(ctx, req)
}

// disassociate gives an address back. It needs the lock of the network.
func (p *publicIPs) disassociate(ctx context.Context, network, owner string, a address) error {
	err := p.api.jobs.runLocked(ctx, jobRequest{
		network: network, owner: owner, what: "releasing address " + a.IP, command: "disassociateIpAddress", params: params{"id": a.ID},
	})
	p.addresses.Invalidate(a.ID) // not Forget: an address keeps its ID when it is acquired again
	return err
}

// handOver moves the record of the address to another Service that still uses it, so that the last user releases it. A Service that is
// being deleted too has already planned without the record, so this one waits for it.
func (p *publicIPs) handOver(ctx context.Context, gone *v1.Service, a address) (handedOver bool, err error) {
	rules, err := p.rules.Find(ctx, indexAddress, a.ID, inventory.Query{})
	if err != nil || len(rules) == 0 {
		return false, err
	}
	heirs, err := p.ownersOf(ctx, rules, gone)
	if err != nil || len(heirs) == 0 {
		return false, err
	}
	heir := heirs[0]
	if at := slices.IndexFunc(heirs, func(s *v1.Service) bool { return !ownership.Leaves(s) }); at >= 0 {
		heir = heirs[at]
		if err := p.records.noteAcquired(ctx, &services.Request{Purpose: services.Delete, Service: heir}, a, false); err != nil {
			return false, err
		}
		if heirs, err = p.ownersOf(ctx, rules, gone); err != nil {
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
func (p *publicIPs) ownersOf(ctx context.Context, rules []rule, gone *v1.Service) (owners []*v1.Service, err error) {
	if p.records.kube == nil {
		return nil, nil
	}
	list, err := p.records.kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
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
func (p *publicIPs) leftoverRules(ctx context.Context, service *v1.Service, a address) (list []firewallRule, err error) {
	if a.VPC != "" || a.HasRules == nil || !*a.HasRules {
		now, err := p.addresses.Get(ctx, a.ID, inventory.Query{})
		if err != nil || a.VPC != "" || now.HasRules == nil || !*now.HasRules {
			return nil, nil //nolint:nilerr // the caller reads the address itself
		}
	}
	rules, err := p.rules.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	all, err := p.firewall.All(ctx, inventory.Query{})
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

// reasonToKeep returns why an address must stay, or "": its release would delete everybody's rules at it.
func (p *publicIPs) reasonToKeep(ctx context.Context, a address) (why string, err error) {
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
	for _, l := range []struct{ what, command, key, by string }{
		{"load balancer", "listLoadBalancerRules", "loadbalancerrule", "publicipid"},
		{"port forwarding", "listPortForwardingRules", "portforwardingrule", "ipaddressid"},
		{"firewall", "listFirewallRules", "firewallrule", "ipaddressid"},
	} {
		what := "listing the " + l.what + " rules of " + a.IP
		found, _, err := list[struct{}](ctx, p.api, listing{what: what, command: l.command, key: l.key, scope: true}, params{l.by: a.ID})
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
