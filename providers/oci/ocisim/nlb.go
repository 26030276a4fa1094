package ocisim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
)

const (
	stateUpdating = "UPDATING"
	versionIPv4   = "IPV4"
	versionIPv6   = "IPV6"
	versionBoth   = "IPV4_AND_IPV6"

	// activeLag is how long a network load balancer stays UPDATING after its work request has ended.
	activeLag = 300 * time.Millisecond
)

// NetworkLoadBalancer is one with all that the API shows of it, what no program knows included.
type NetworkLoadBalancer struct {
	ID, Name, State string
	Doc             document
	// Address and Public are its private address and its public one, which is empty where it has none; IPv6 is that of IPv6.
	Address, Public, IPv6 string

	reserved             *reserved
	made, changed, ended time.Time
	version              int
	// free is when it leaves the state UPDATING.
	free time.Time
}

// networkBalancing holds the simulator's network load balancers and their work requests.
type networkBalancing struct {
	nlbs     []*NetworkLoadBalancer
	nlbWorks works
	nlbCount int
	// unserved is set where the policies of the user do not mention network load balancers.
	unserved bool
	// forgetful is set where work requests are forgotten at once.
	forgetful bool
}

// NetworkLoadBalancers returns copies of those that are not deleted.
func (s *Sim) NetworkLoadBalancers() []NetworkLoadBalancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleNetwork()
	all := []NetworkLoadBalancer{}
	for _, lb := range s.nlbs {
		if lb.State != stateDeleted {
			one := *lb
			one.Doc = jsondoc.Clone(lb.Doc)
			all = append(all, one)
		}
	}
	return all
}

// EditNetworkLoadBalancer changes one as somebody does by hand.
func (s *Sim) EditNetworkLoadBalancer(name string, change func(*NetworkLoadBalancer)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleNetwork()
	for _, lb := range s.nlbs {
		if lb.Name == name && lb.State != stateDeleted {
			change(lb)
			lb.version++
			return nil
		}
	}
	return fmt.Errorf("there is no network load balancer %s", name)
}

// AddNetworkLoadBalancer adds one as another program has made it.
func (s *Sim) AddNetworkLoadBalancer(name string, doc map[string]any) {
	s.mu.Do(func() { s.addNetwork(name, jsondoc.Clone(doc)).State = stateActive })
}

// RemoveNetworkLoadBalancers deletes all of them, as somebody does by hand.
func (s *Sim) RemoveNetworkLoadBalancers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lb := range s.nlbs {
		lb.State, lb.ended = stateDeleted, time.Now()
	}
	s.nlbWorks = nil
}

// BeginNetworkWork makes the cloud work on a network load balancer for somebody else.
func (s *Sim) BeginNetworkWork(name string, lasts time.Duration) error {
	return s.EditNetworkLoadBalancer(name, func(lb *NetworkLoadBalancer) {
		s.beginNetwork("UPDATE_LISTENER", lb, func(*NetworkLoadBalancer) {}).due = time.Now().Add(lasts)
		lb.State = stateUpdating
	})
}

// SetNetworkUnserved makes the cloud show no network load balancers, as to a user whose policies do not mention them.
func (s *Sim) SetNetworkUnserved(unserved bool) { s.mu.Do(func() { s.unserved = unserved }) }

// SetForgetful makes the cloud forget the work requests of network load balancers at once.
func (s *Sim) SetForgetful(forgetful bool) { s.mu.Do(func() { s.forgetful = forgetful }) }

// addNetwork adds a network load balancer, with the addresses that the cloud gives it.
func (s *Sim) addNetwork(name string, d document) *NetworkLoadBalancer {
	s.nlbCount++
	n := s.nlbCount
	for _, kind := range []string{"listeners", "backendSets"} {
		if d[kind] == nil {
			d[kind] = document{}
		}
	}
	for field, usual := range map[string]any{
		"nlbIpVersion": versionIPv4, "isPrivate": false, "networkSecurityGroupIds": []any{}, "isPreserveSourceDestination": false,
		"isSymmetricHashEnabled": false, "freeformTags": document{}, "definedTags": document{},
	} {
		if d[field] == nil {
			d[field] = usual
		}
	}
	lb := &NetworkLoadBalancer{
		ID: fmt.Sprintf("ocid1.networkloadbalancer.oc1.phx.aaaanetwork%06d", n), Name: name, State: stateCreating, Doc: d, made: time.Now(),
		Address: fmt.Sprintf("10.0.%d.%d", 200+n/250, n%250+1),
	}
	if d["nlbIpVersion"] != versionIPv4 {
		lb.IPv6 = fmt.Sprintf("2603:c020:0:ff::%x", n)
	}
	if d["isPrivate"] != true {
		lb.Public = fmt.Sprintf("140.239.%d.%d", n/250, n%250+1)
	}
	if ip, ok := d["assignedPrivateIpv4"].(string); ok {
		lb.Address = ip
	}
	if ip, ok := d["assignedIpv6"].(string); ok {
		lb.IPv6 = ip
	}
	for _, v := range list(d["reservedIps"]) {
		lb.reserved = s.reservation(fmt.Sprint(v.(document)["id"])) //nolint:forcetypeassert // its shape was judged
		lb.reserved.state, lb.Public = "ASSIGNED", lb.reserved.address
	}
	for _, field := range []string{"assignedPrivateIpv4", "assignedIpv6", "reservedIps", "displayName"} {
		delete(d, field) // which the API does not show
	}
	s.nlbs = append(s.nlbs, lb)
	return lb
}

// settleNetwork ends what is due.
func (s *Sim) settleNetwork() {
	now := time.Now()
	s.nlbWorks.end(now)
	for _, lb := range s.nlbs {
		if lb.State == stateUpdating && !s.nlbWorks.isBusy(lb.ID) && !now.Before(lb.free) {
			lb.State = stateActive
		}
		if lb.State == stateDeleted && lb.reserved != nil {
			lb.reserved.state, lb.reserved = "AVAILABLE", nil
		}
	}
	s.nlbs = slices.DeleteFunc(s.nlbs, func(lb *NetworkLoadBalancer) bool {
		return lb.State == stateDeleted && now.Sub(lb.ended) > remembered
	})
}

// reservation is a reserved address; nil where there is none.
func (s *Sim) reservation(id string) *reserved {
	at := slices.IndexFunc(s.reserved, func(r *reserved) bool { return r.id == id })
	if at < 0 {
		return nil
	}
	return s.reserved[at]
}

func (s *Sim) nlb(id string) *NetworkLoadBalancer {
	at := slices.IndexFunc(s.nlbs, func(lb *NetworkLoadBalancer) bool { return lb.ID == id })
	if at < 0 {
		return nil
	}
	return s.nlbs[at]
}

// beginNetwork begins work.
func (s *Sim) beginNetwork(kind string, lb *NetworkLoadBalancer, apply func(*NetworkLoadBalancer)) *work {
	s.nlbCount++
	updates := func(w *work) { lb.State, lb.free = stateUpdating, w.due.Add(activeLag) }
	return s.beginWork(&s.nlbWorks, &work{
		id: fmt.Sprintf("ocid1.nlbworkrequest.oc1.phx.aaaawork%06d", s.nlbCount), kind: kind, target: lb.ID,
		done: func(w *work) {
			updates(w)
			lb.version++
			lb.changed = w.due
			apply(lb)
		},
		failed: func(w *work) {
			if lb.State == stateCreating {
				lb.State = stateFailed
				return
			}
			updates(w)
		},
	})
}

// shownNetwork is a work request as the API of network load balancers shows it.
func (w *work) shownNetwork() document {
	d := document{
		"id": w.id, "operationType": w.kind, "status": w.state, "compartmentId": Compartment, "percentComplete": 10.0, "timeAccepted": stamp(w.begun),
		"resources": []any{document{"entityType": "NetworkLoadBalancer", "actionType": "IN_PROGRESS", "identifier": w.target}},
	}
	if w.state == stateFailed || w.state == workSucceeded {
		d["percentComplete"], d["timeFinished"] = 100.0, stamp(w.due)
		d["resources"] = []any{
			document{"entityType": "VNIC", "actionType": "RELATED", "identifier": "ocid1.vnic.oc1.phx.other"},
			document{"entityType": "NetworkLoadBalancer", "actionType": "UPDATED", "identifier": w.target},
		}
	}
	return d
}

// shown is a network load balancer as the API shows it, with what it fills in by itself.
func (lb *NetworkLoadBalancer) shown() document {
	d := jsondoc.Clone(lb.Doc)
	d["id"], d["displayName"], d["lifecycleState"], d["timeCreated"] = lb.ID, lb.Name, lb.State, stamp(lb.made)
	if !lb.changed.IsZero() {
		d["timeUpdated"] = stamp(lb.changed)
	}
	for name, l := range part(d, "listeners") {
		fill(l.(document), document{ //nolint:forcetypeassert // checked when it was written
			"name": name, "isPpv2Enabled": false, "ipVersion": versionIPv4, "tcpIdleTimeout": 360.0, "udpIdleTimeout": 120.0,
		})
	}
	for name, b := range part(d, "backendSets") {
		set := b.(document) //nolint:forcetypeassert // checked when it was written
		fill(set, document{
			"name": name, "isPreserveSource": true, "isFailOpen": false, "isInstantFailoverEnabled": false, "ipVersion": versionIPv4,
			"isInstantFailoverTcpResetEnabled": true, "areOperationallyActiveBackendsPreferred": false, "backends": []any{},
		})
		fill(part(set, "healthChecker"), document{"port": 0.0, "retries": 3.0, "timeoutInMillis": 3000.0, "intervalInMillis": 10000.0})
		for _, v := range list(set["backends"]) {
			backend := v.(document) //nolint:forcetypeassert // checked when it was written
			fill(backend, document{"weight": 1.0, "isBackup": false, "isDrain": false, "isOffline": false})
			backend["name"] = backendKey(backend)
		}
		// The order is the cloud's own.
		slices.SortFunc(list(set["backends"]), func(a, b any) int { return strings.Compare(backendKey(b), backendKey(a)) })
	}
	d["ipAddresses"] = []any{}
	if lb.State != stateCreating && lb.State != stateFailed {
		d["ipAddresses"] = lb.addresses()
	}
	return d
}

func (lb *NetworkLoadBalancer) addresses() []any {
	all := []any{}
	add := func(ip string, public bool) {
		if ip == "" {
			return
		}
		version := versionIPv4
		if address, err := netip.ParseAddr(ip); err == nil && address.Is6() {
			version = versionIPv6
		}
		one := document{"ipAddress": ip, "isPublic": public, "ipVersion": version}
		if lb.reserved != nil && ip == lb.reserved.address {
			one["reservedIp"] = document{"id": lb.reserved.id}
		}
		all = append(all, one)
	}
	if lb.Doc["nlbIpVersion"] != versionIPv4 {
		add(lb.IPv6, lb.Public != "")
	}
	if lb.Doc["nlbIpVersion"] != versionIPv6 {
		add(lb.Address, false)
		add(lb.Public, true)
	}
	return all
}

// fill sets the fields that are absent.
func fill(d, usual document) {
	for name, v := range usual {
		if d[name] == nil {
			d[name] = v
		}
	}
}

// backendKey is the name that the cloud gives a backend.
func backendKey(v any) string {
	b, _ := v.(document)
	if b["targetId"] != nil {
		return fmt.Sprintf("%v:%v", b["targetId"], b["port"])
	}
	return fmt.Sprintf("%v:%v", b["ipAddress"], b["port"])
}
