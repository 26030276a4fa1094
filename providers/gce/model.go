package gce

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Settings of health checks, and kube-proxy's port and path that answer them.
const (
	checkInterval  = 8
	checkTimeout   = 1
	checkHealthy   = 1
	checkUnhealthy = 3
	checkType      = "HTTP"
	checkPath      = "/healthz"
	kubeProxyPort  = 10256

	firewallPriority = 1000
	protocolTCP      = "tcp"
	affinityClient   = "CLIENT_IP"
	affinityNone     = "NONE"
)

// desired is the desired state of a Service.
type desired struct {
	settings settings
	at       location
	name     string
	// cluster is the cluster's ID in names, clusterUID the one in marks, "" if objects are not marked. service is the Service's full name.
	cluster, clusterUID, service  string
	ports                         []v1.ServicePort
	protocol, portRange, affinity string
	tier                          string
	ip                            string
	// ipIsUsers: a user has reserved the address, so that it is never released.
	ipIsUsers bool
	// members are the paths of the instances; tags are the nodes' network tags.
	members []string
	tags    []string
	// ownCheck: the health check is not shared. sources are the networks that health checks come from.
	ownCheck  bool
	checkPort int64
	sources   []string

	// Internal load balancers only. legacy: the network has no subnets.
	internal     bool
	subnet       string
	legacy       bool
	globalAccess bool
	groups       []desiredGroup
	// backend is the name of the backend service, which may be shared.
	backend string
}

// setPorts sets the fields that follow from the Service's ports.
func (d *desired) setPorts(service *v1.Service) {
	d.ports, d.service = service.Spec.Ports, fullName(service)
	d.protocol = cmp.Or(string(service.Spec.Ports[0].Protocol), "TCP")
	low, high := d.ports[0].Port, d.ports[0].Port
	for _, p := range d.ports {
		low, high = min(low, p.Port), max(high, p.Port)
	}
	d.portRange = fmt.Sprintf("%d-%d", low, high) // a target pool's rule has one range; the firewall admits only the Service's ports
	d.affinity = affinityNone
	if service.Spec.SessionAffinity == v1.ServiceAffinityClientIP {
		d.affinity = affinityClient
	}
	d.ownCheck = service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && service.Spec.HealthCheckNodePort != 0
	d.checkPort = kubeProxyPort
	if d.ownCheck {
		d.checkPort = int64(service.Spec.HealthCheckNodePort)
	}
}

// portRanges returns the ports in ascending order, adjacent ones as one range.
func portRanges(ports []v1.ServicePort) (ranges []string) {
	numbers := make([]int32, 0, len(ports))
	for _, p := range ports {
		numbers = append(numbers, p.Port)
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		text := strconv.Itoa(int(numbers[i]))
		if end > i {
			text += "-" + strconv.Itoa(int(numbers[end]))
		}
		ranges, i = append(ranges, text), end+1
	}
	return ranges
}

// firewallChange describes the differences of a firewall rule, "" if there are none. Additional tags stay, because Google's own controller
// never compares them.
func firewallChange(have, want *compute.Firewall) string {
	var differs []string
	note := func(bad bool, what string) {
		if bad {
			differs = append(differs, what)
		}
	}
	note(have.Description != want.Description, "description")
	note(have.Priority != want.Priority, "priority")
	note(!equalRanges(have.SourceRanges, want.SourceRanges), "source ranges")
	if len(want.DestinationRanges) > 0 { // the shared rule may have one from Google's controller, which the next change corrects
		note(!equalRanges(have.DestinationRanges, want.DestinationRanges), "destination")
	}
	note(len(have.Allowed) != 1 || !strings.EqualFold(have.Allowed[0].IPProtocol, want.Allowed[0].IPProtocol) ||
		!slices.Equal(numbersOf(have.Allowed[0].Ports), numbersOf(want.Allowed[0].Ports)), "ports")
	lacks := func(t string) bool { return !slices.Contains(have.TargetTags, t) }
	note(slices.ContainsFunc(want.TargetTags, lacks), "target tags") // without any, a rule applies to all instances of the network
	return strings.Join(differs, ", ")
}

// numbersOf expands ports and port ranges.
func numbersOf(list []string) (all []int) {
	for _, text := range list {
		from, to, both := strings.Cut(text, "-")
		if !both {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil {
			return nil
		}
		for n := a; n <= b; n++ {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// equalRanges compares networks; one without a prefix length is a single address.
func equalRanges(a, b []string) bool {
	normal := func(list []string) (all []string) {
		for _, text := range list {
			if ip, err := netip.ParseAddr(text); err == nil {
				text = netip.PrefixFrom(ip, ip.BitLen()).String()
			}
			all = append(all, text)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return slices.Equal(normal(a), normal(b))
}

// mergeFirewall keeps additional tags of the present rule, and sends empty fields explicitly.
func mergeFirewall(have, want *compute.Firewall) *compute.Firewall {
	f := *want
	f.TargetTags = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(want.TargetTags), have.TargetTags...))))
	if len(f.DestinationRanges) == 0 && len(have.DestinationRanges) > 0 {
		f.NullFields = []string{"DestinationRanges"}
	}
	return &f
}

// diffMembers returns the paths of the instances to add and to remove.
func diffMembers(have, want []string) (add, remove []string) {
	present, wanted := sets.New(have...), sets.New(want...)
	return sets.List(wanted.Difference(present)), sets.List(present.Difference(wanted))
}

// tagsOf returns the tags by which firewall rules select the nodes: of each instance the longest tag that is a prefix of its name.
func tagsOf(list []instance) (tags []string, problem string) {
	for _, i := range list {
		best := ""
		for _, t := range i.tags {
			if strings.HasPrefix(i.id.name, t) && len(t) > len(best) {
				best = t
			}
		}
		if best == "" {
			problem = fmt.Sprintf("no network tag of instance %s is the beginning of its name, so that no firewall rule can be made for it; "+
				"give all nodes a tag and name it by node-tags in the cloud config", i.id)
			continue
		}
		tags = append(tags, best)
	}
	slices.Sort(tags)
	return slices.Compact(tags), problem
}
