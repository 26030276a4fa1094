package oci

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file computes and calls nobody: Service, nodes and settings make what is desired of a network load balancer.

const (
	protocolUDP  = "UDP"
	protocolBoth = "TCP_AND_UDP"
	twinSuffix   = "-IPv6"
)

// networkName is the name that Oracle's own controller gives.
func networkName(service *v1.Service) string {
	name := service.Namespace + "/" + service.Name + "/" + string(service.UID)
	return name[:min(len(name), maxTitle)]
}

// networkSpec is what is asked of a network load balancer.
type networkSpec struct {
	name      string
	version   string
	listeners map[string]document
	sets      map[string]document
	// noNodes is set where no node can receive traffic: the backends stay as they are.
	noNodes bool
	groups  []string
	// create is what an absent network load balancer is made by.
	create document
	// rules is what is to become of security rules, which are the same for both kinds of load balancers.
	rules spec
}

// families are the versions of IP that a Service asks for.
func families(service *v1.Service) (four, six bool) {
	list := service.Spec.IPFamilies
	six = slices.Contains(list, v1.IPv6Protocol)
	return !six || slices.Contains(list, v1.IPv4Protocol), six
}

func versionFor(four, six bool) string {
	switch {
	case four && six:
		return versionBoth
	case six:
		return versionIPv6
	}
	return versionIPv4
}

// portGroup is a port of the network load balancer: TCP and UDP of one port have one listener.
type portGroup struct {
	protocol   string
	port, node int32
}

// groupPorts are the ports of a Service, each number once. Two node ports of one number are refused beforehand, and the first counts.
func groupPorts(service *v1.Service) (all []portGroup) {
	for _, p := range service.Spec.Ports {
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = protocolTCP
		}
		at := slices.IndexFunc(all, func(g portGroup) bool { return g.port == p.Port })
		if at < 0 {
			all = append(all, portGroup{protocol, p.Port, p.NodePort})
			continue
		}
		if all[at].protocol != protocol {
			all[at].protocol = protocolBoth
		}
	}
	return all
}

// partNameOf is the name of a port's listener and of its backend set; those of IPv6 have names of their own.
func (g portGroup) partNameOf(six bool) string {
	name := g.protocol + "-" + strconv.Itoa(int(g.port))
	if six {
		name += twinSuffix
	}
	return name
}

// eachFamily calls back for each version of IP.
func eachFamily(four, six bool, do func(six bool, version string)) {
	if four {
		do(false, versionIPv4)
	}
	if six {
		do(true, versionIPv6)
	}
}

// listeners are the listeners by name.
func (s networkSettings) listeners(service *v1.Service, four, six bool) map[string]document {
	all := map[string]document{}
	for _, g := range groupPorts(service) {
		eachFamily(four, six, func(six bool, version string) {
			name := g.partNameOf(six)
			l := document{"name": name, "defaultBackendSetName": name, "port": g.port, "protocol": g.protocol, "ipVersion": version}
			if strings.EqualFold(s.PPv2, "true") || strings.EqualFold(s.PPv2, "false") {
				l["isPpv2Enabled"] = strings.EqualFold(s.PPv2, "true")
			}
			all[name] = jsondoc.Clone(l)
		})
	}
	return all
}

// preserves reports whether nodes are to see the addresses of clients.
func (s networkSettings) preserves(service *v1.Service) bool {
	return service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && s.Preserve
}

// seesClients reports whether the nodes of a Service see the addresses of clients.
func seesClients(service *v1.Service) bool {
	if !isNetworkService(service) {
		return false
	}
	s, _, _ := parseNetwork(service) // what else is wrong does not matter here
	return s.preserves(service)
}

// sets are the backend sets by name.
func (s networkSettings) sets(service *v1.Service, targets []target, four, six bool) map[string]document {
	all := map[string]document{}
	for _, g := range groupPorts(service) {
		eachFamily(four, six, func(six bool, version string) {
			all[g.partNameOf(six)] = jsondoc.Clone(document{
				"policy": cmp.Or(s.Policy, fiveTuple), "isPreserveSource": s.preserves(service), "ipVersion": version,
				"healthChecker": s.checker(service), "backends": backendsOf(targets, six, g.node),
			})
		})
	}
	return all
}

// checker is the health check of all ports, those of UDP too: it asks kube-proxy.
func (s networkSettings) checker(service *v1.Service) document {
	d := settings{Retries: s.Retries, Interval: s.Interval, Timeout: s.Timeout}.checker(service)
	delete(d, "isForcePlainText") // which network load balancers do not have
	return d
}

// target is a node that receives traffic.
type target struct {
	instance, four, six string
}

// targetsOf are the nodes that receive traffic. Of several with one address the first counts, because the cloud refuses a second.
func (s networkSettings) targetsOf(nodes []*v1.Node) (all []target) {
	chosen, err := labels.Parse(s.Selector)
	if err != nil {
		chosen = labels.Nothing()
	}
	for _, n := range nodes {
		id, err := parseProviderID(n.Spec.ProviderID)
		if err != nil || !chosen.Matches(labels.Set(n.Labels)) {
			continue
		}
		t := target{instance: id, four: addressOf(n), six: sixOf(n)}
		if t.four != "" || t.six != "" {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b target) int {
		return cmp.Or(strings.Compare(a.four, b.four), strings.Compare(a.six, b.six), strings.Compare(a.instance, b.instance))
	})
	return all
}

// sixOf is the last internal address of IPv6, or else the last external one; "" is none.
func sixOf(n *v1.Node) string {
	last := map[v1.NodeAddressType]string{}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is6() && !ip.Is4In6() {
			last[a.Type] = a.Address
		}
	}
	return cmp.Or(last[v1.NodeInternalIP], last[v1.NodeExternalIP])
}

func backendsOf(targets []target, six bool, port int32) []any {
	all := []any{}
	seen := map[string]bool{}
	for _, t := range targets {
		b := document{"ipAddress": t.four, "targetId": t.instance, "port": port, "weight": 1}
		if six {
			b = document{"ipAddress": t.six, "port": port, "weight": 1} // which cannot be named by their instances
		}
		ip, _ := b["ipAddress"].(string)
		if ip == "" || seen[ip] || (!six && seen[t.instance]) {
			continue
		}
		seen[ip], seen[t.instance] = true, true
		all = append(all, b)
	}
	return all
}

// reachable reports whether any node can receive traffic of a version of IP that is asked for.
func reachable(targets []target, four, six bool) bool {
	return slices.ContainsFunc(targets, func(t target) bool { return four && t.four != "" || six && t.six != "" })
}

// networkKeyOf is what tells backends apart: those that were named by their instances may show no address.
func networkKeyOf(backend any) string {
	b, _ := backend.(document)
	if ip, _ := b["ipAddress"].(string); ip == "" {
		return fmt.Sprintf("%v:%v", b["targetId"], b["port"])
	}
	return keyOf(backend)
}

// mergeNetworkBackends are the backends that there should be. Those that are there already keep all that somebody has set about them, but
// for the instance, which is another one where a node was made again with the address of a former one.
func mergeNetworkBackends(have, want []any) (after []any, differs bool) {
	known, used := map[string]document{}, map[string]bool{}
	for _, b := range have {
		if d, ok := b.(document); ok {
			known[networkKeyOf(b)] = d
		}
	}
	after = []any{}
	for _, b := range want {
		wanted, _ := b.(document)
		key := networkKeyOf(b)
		is, ok := known[key]
		if !ok && wanted["targetId"] != nil {
			key = fmt.Sprintf("%v:%v", wanted["targetId"], wanted["port"])
			is, ok = known[key]
		}
		if !ok {
			after, differs = append(after, b), true
			continue
		}
		used[key] = true
		is = withoutShown(is)
		if id, named := is["targetId"].(string); named && wanted["targetId"] != nil && wanted["targetId"] != id {
			is["targetId"], differs = wanted["targetId"], true
		}
		after = append(after, is)
	}
	return after, differs || len(used) != len(have)
}

// mergeNetworkSet is a backend set as it should be, with all that is in it besides; what says how it differs.
func mergeNetworkSet(have, want document, keepBackends bool) (after document, what []string) {
	after = withoutShown(have)
	wanted := listOf(want["backends"])
	if keepBackends {
		wanted = listOf(have["backends"])
	}
	backends, differs := mergeNetworkBackends(listOf(have["backends"]), wanted)
	if after["backends"] = backends; differs && !keepBackends {
		what = append(what, "backends")
	}
	for _, field := range []struct{ key, name string }{{"policy", "policy"}, {"isPreserveSource", "source addresses"}} {
		if want[field.key] != nil && !same(have[field.key], want[field.key]) {
			after[field.key] = want[field.key]
			what = append(what, field.name)
		}
	}
	checker, _ := want["healthChecker"].(document)
	now, _ := after["healthChecker"].(document)
	if now == nil {
		now = document{}
		after["healthChecker"] = now
	}
	differs = false
	for _, key := range sortedKeys(checker) {
		if !same(now[key], checker[key]) {
			now[key], differs = checker[key], true
		}
	}
	if differs {
		what = append(what, "health check")
	}
	return after, what
}

// mergeNetworkListener is a listener as it should be, with all that is in it besides. Without the annotation the nodes get no header.
func mergeNetworkListener(have, want document) (after document, differs bool) {
	after = withoutShown(have)
	for _, key := range []string{"defaultBackendSetName", "port", "protocol"} {
		if !same(have[key], want[key]) {
			after[key], differs = want[key], true
		}
	}
	header, _ := want["isPpv2Enabled"].(bool)
	if !same(have["isPpv2Enabled"], header) {
		after["isPpv2Enabled"], differs = header, true
	}
	return after, differs
}

// normalizedNetwork is a listener's name by which it is found again: what follows the port, and the family, does not count.
func normalizedNetwork(name string) string {
	parts := strings.Split(name, "-")
	kept := 2 // a protocol and a port
	if strings.HasSuffix(name, twinSuffix) {
		return strings.Join(parts[:min(len(parts), kept)], "-") + twinSuffix
	}
	return strings.Join(parts[:min(len(parts), kept)], "-")
}

// matchNetwork finds the listener of each that there should be, by their names, and those that belong to none.
func matchNetwork(have, want map[string]document) (found map[string]string, extra []string) {
	found = map[string]string{}
	for _, is := range sortedKeys(have) {
		name := normalizedNetwork(is)
		if _, exact := want[is]; exact {
			name = is
		}
		before, taken := found[name]
		switch {
		case want[name] == nil || (taken && is != name):
			extra = append(extra, is)
			continue
		case taken:
			extra = append(extra, before)
		}
		found[name] = is
	}
	slices.Sort(extra)
	return found, extra
}

// creation is the request for the whole network load balancer, as Oracle's own controller makes it.
func (d networkSpec) creation(s networkSettings, compartment, subnet string, reserved []any, tags tags) document {
	all := document{
		"compartmentId": compartment, "displayName": d.name, "subnetId": subnet, "isPrivate": s.Internal, "backendSets": d.sets,
		"listeners": d.listeners, "networkSecurityGroupIds": d.groups, "reservedIps": reserved, "nlbIpVersion": d.version,
	}
	if s.PrivateIPv4 != "" && d.version != versionIPv6 {
		all["assignedPrivateIpv4"] = s.PrivateIPv4
	}
	if s.IPv6 != "" && d.version != versionIPv4 {
		all["assignedIpv6"] = s.IPv6
	}
	if len(tags.Freeform) > 0 {
		all["freeformTags"] = tags.Freeform
	}
	if len(tags.Defined) > 0 {
		all["definedTags"] = tags.Defined
	}
	return jsondoc.Clone(all)
}

// networkStatus is the status that a network load balancer gives: public addresses alone where that is asked for.
func (s networkSettings) status(service *v1.Service, lb *loadBalancer) *v1.LoadBalancerStatus {
	shown := *lb
	if s.ExternalOnly && !lb.Private {
		shown.Addresses = slices.DeleteFunc(slices.Clone(shown.Addresses), func(a address) bool { return !a.Public })
	}
	return inOrderOf(service, statusOf(&shown, s.IPMode))
}

// inOrderOf is a status in the order that the Service shows already, where it is the same: an order is no news.
func inOrderOf(service *v1.Service, status *v1.LoadBalancerStatus) *v1.LoadBalancerStatus {
	is := service.Status.LoadBalancer.Ingress
	text := func(list []v1.LoadBalancerIngress) (all []string) {
		for _, in := range list {
			mode := ""
			if in.IPMode != nil {
				mode = string(*in.IPMode)
			}
			all = append(all, in.IP+" "+mode)
		}
		return all
	}
	if services.SameSet(text(is), text(status.Ingress)) && len(is) == len(status.Ingress) {
		status.Ingress = slices.Clone(is)
	}
	return status
}
