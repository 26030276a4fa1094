package oci

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
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
	return ocilimits.Title.Cut(name)
}

// families are the versions of IP that a Service asks for.
func families(service *v1.Service) (four, six bool) {
	list := service.Spec.IPFamilies
	six = slices.Contains(list, v1.IPv6Protocol)
	return !six || slices.Contains(list, v1.IPv4Protocol), six
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
func (s settings) eachFamily(do func(six bool, version string)) {
	if !s.sixAlone {
		do(false, versionIPv4)
	}
	if s.six {
		do(true, versionIPv6)
	}
}

// networkListeners are the listeners by name.
func (s settings) networkListeners(service *v1.Service) map[string]document {
	all := map[string]document{}
	for _, g := range groupPorts(service) {
		s.eachFamily(func(six bool, version string) {
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

// seesClients reports whether the nodes of a Service see the addresses of clients.
func seesClients(service *v1.Service) bool {
	if !isNetworkService(service) {
		return false
	}
	s, _, _ := parseNetwork(service) // what else is wrong does not matter here
	return s.preserve
}

// networkSets are the backend sets by name.
func (s settings) networkSets(service *v1.Service, nodes []*v1.Node) map[string]document {
	all := map[string]document{}
	targets := s.targetsOf(nodes)
	checker := s.checker(service)
	delete(checker, "isForcePlainText") // which network load balancers do not have
	for _, g := range groupPorts(service) {
		s.eachFamily(func(six bool, version string) {
			all[g.partNameOf(six)] = jsondoc.Clone(document{
				"policy": cmp.Or(s.Policy, fiveTuple), "isPreserveSource": s.preserve, "ipVersion": version,
				"healthChecker": checker, "backends": backendsOf(targets, six, g.node),
			})
		})
	}
	return all
}

// target is a node that receives traffic.
type target struct {
	instance, four, six string
}

// targetsOf are the nodes that receive traffic. Of several with one address the first counts, because the cloud refuses a second.
func (s settings) targetsOf(nodes []*v1.Node) (all []target) {
	for _, n := range s.eligible(nodes) {
		id, _ := parseProviderID(n.Spec.ProviderID) // which has one
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

// mergeNetworkListener is a listener as it should be, with all that is in it besides. Without the annotation the nodes get no header.
func mergeNetworkListener(have, want document) (after document, differs bool) {
	after = withoutShown(have)
	for _, key := range []string{"defaultBackendSetName", "port", "protocol"} {
		if !equalField(have[key], want[key]) {
			after[key], differs = want[key], true
		}
	}
	header, _ := want["isPpv2Enabled"].(bool)
	if !equalField(have["isPpv2Enabled"], header) {
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

// networkCreation returns the further fields of the request that creates a network load balancer.
func (d spec) networkCreation(s settings, p placement) document {
	all := document{"subnetId": p.subnets[0], "nlbIpVersion": d.version}
	if s.PrivateIPv4 != "" && d.version != versionIPv6 {
		all["assignedPrivateIpv4"] = s.PrivateIPv4
	}
	if s.IPv6 != "" && d.version != versionIPv4 {
		all["assignedIpv6"] = s.IPv6
	}
	return all
}

// version is the word for the versions of IP that there are.
func (s settings) version() string {
	switch {
	case s.sixAlone:
		return versionIPv6
	case s.six:
		return versionBoth
	}
	return versionIPv4
}

// status is the status that a load balancer gives: public addresses alone where that is asked for.
func (s settings) status(service *v1.Service, lb *loadBalancer) *v1.LoadBalancerStatus {
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
