package gcesim

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Spec describes an instance to create; unset fields get defaults.
type Spec struct {
	Name, Zone, Type, Status string
	Tags                     []string
	// Interfaces replace the default interface, which has an address of each kind.
	Interfaces []Interface
	Spot       bool
	Bare       bool
	// Closed disables IP forwarding.
	Closed bool
}

// Interface is a network interface.
type Interface struct {
	IP string
	// NAT are the external addresses; "" is an access config without one.
	NAT []string
	// IPv6 is an internal address, ExternalIPv6 an external one.
	IPv6, ExternalIPv6 string
	// Alias is an alias range for pods.
	Alias string
	// Network is a path; empty for the default.
	Network string
}

func numberText(n int) string { return strconv.Itoa(1_000_000_000_000_000_000 + n) }

// AddInstance starts an instance and returns its provider ID.
func (s *Sim) AddInstance(spec Spec) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if spec.Zone == "" {
		spec.Zone = zones[0]
	}
	if spec.Type == "" {
		spec.Type = "e2-standard-4"
	}
	if spec.Status == "" {
		spec.Status = "RUNNING"
	}
	if spec.Tags == nil {
		spec.Tags = []string{NodeTag}
	}
	s.number++
	if spec.Interfaces == nil && !spec.Bare {
		spec.Interfaces = []Interface{{
			IP: fmt.Sprintf("10.128.%d.%d", s.number/250%250, s.number%250+2), NAT: []string{fmt.Sprintf("34.1.%d.%d", s.number/250%250, s.number%250+1)},
		}}
	}
	at := location{project: Project, scope: "zones/" + spec.Zone, collection: "instances", name: spec.Name}
	zone := "projects/" + Project + "/zones/" + spec.Zone
	d := document{
		"name": spec.Name, "status": spec.Status, "machineType": linkTo(zone + "/machineTypes/" + spec.Type), "canIpForward": !spec.Closed,
		"tags": map[string]any{"items": anys(spec.Tags), "fingerprint": "abcdef0123A="}, "labelFingerprint": "abcdef0123A=", "deletionProtection": false,
		"scheduling": map[string]any{"onHostMaintenance": "MIGRATE", "automaticRestart": true, "preemptible": false, "provisioningModel": "STANDARD"},
	}
	if spec.Spot {
		d["scheduling"] = map[string]any{
			"onHostMaintenance": "TERMINATE", "automaticRestart": false, "preemptible": true, "provisioningModel": "SPOT", "instanceTerminationAction": "STOP",
		}
	}
	var interfaces []any
	for n, i := range spec.Interfaces {
		interfaces = append(interfaces, i.document(n))
	}
	if interfaces != nil {
		d["networkInterfaces"] = interfaces
	}
	s.insert(at, d)
	return "gce://" + Project + "/" + spec.Zone + "/" + spec.Name
}

func (i Interface) document(n int) map[string]any {
	d := map[string]any{
		"kind": "compute#networkInterface", "name": fmt.Sprint("nic", n), "network": linkTo("projects/" + Project + "/global/networks/" + Network),
		"subnetwork": linkTo("projects/" + Project + "/regions/" + Region + "/subnetworks/" + Subnet), "fingerprint": "abcdef0123A=", "stackType": "IPV4_ONLY",
	}
	if i.Network != "" {
		d["network"] = linkTo(i.Network)
	}
	if i.IP != "" {
		d["networkIP"] = i.IP
	}
	var configs []any
	for _, nat := range i.NAT {
		c := map[string]any{"kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "name": "External NAT", "networkTier": "PREMIUM"}
		if nat != "" {
			c["natIP"] = nat
		}
		configs = append(configs, c)
	}
	if configs != nil {
		d["accessConfigs"] = configs
	}
	if i.IPv6 != "" {
		d["ipv6Address"], d["ipv6AccessType"], d["stackType"] = i.IPv6, "INTERNAL", "IPV4_IPV6"
	}
	if i.ExternalIPv6 != "" {
		d["ipv6AccessType"], d["stackType"] = "EXTERNAL", "IPV4_IPV6"
		d["ipv6AccessConfigs"] = []any{map[string]any{
			"kind": "compute#accessConfig", "type": "DIRECT_IPV6", "name": "external-ipv6", "externalIpv6": i.ExternalIPv6, "externalIpv6PrefixLength": 96,
		}}
	}
	if i.Alias != "" {
		d["aliasIpRanges"] = []any{map[string]any{"ipCidrRange": i.Alias, "subnetworkRangeName": "pods"}}
	}
	return d
}

func anys(list []string) []any {
	all := make([]any, len(list))
	for i, v := range list {
		all[i] = v
	}
	return all
}

// RemoveInstanceByID deletes an instance, also from its pools and groups.
func (s *Sim) RemoveInstanceByID(providerID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := instancePath(providerID)
	delete(s.objects, p)
	for q, d := range s.objects {
		if parsePath(q).collection == "targetPools" {
			d["instances"] = removeLinks(d["instances"], p)
		}
		if parsePath(q).collection == "instanceGroups" {
			d["members"] = removeLinks(d["members"], p)
			d["size"] = len(textsOf(d["members"]))
		}
	}
}

func removeLinks(v any, paths ...string) []any {
	all, _ := v.([]any)
	gone := setOf(paths)
	return slices.DeleteFunc(slices.Clone(all), func(e any) bool {
		link, _ := e.(string)
		return gone[location{}.resource(link)]
	})
}

// instancePath returns the path for a provider ID.
func instancePath(providerID string) string {
	parts := strings.Split(strings.TrimPrefix(providerID, "gce://"), "/")
	if len(parts) != 3 {
		return ""
	}
	return location{project: parts[0], scope: "zones/" + parts[1], collection: "instances", name: parts[2]}.path()
}

// RemoveInstances destroys all instances.
func (s *Sim) RemoveInstances() {
	for _, i := range s.Instances() {
		s.RemoveInstanceByID(i.ProviderID)
	}
}

// SetStatus changes the status of the instance with a provider ID.
func (s *Sim) SetStatus(providerID, status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.objects[instancePath(providerID)]
	if !ok {
		return errors.New("there is no instance " + providerID)
	}
	d["status"] = status
	return nil
}

// Instances implements simkit.Cloud.
func (s *Sim) Instances() []simkit.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paths []string
	for p := range s.objects {
		if parsePath(p).collection == "instances" {
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return s.born[a] - s.born[b] })
	list := make([]simkit.Instance, 0, len(paths))
	for _, p := range paths {
		at := parsePath(p)
		list = append(list, simkit.Instance{
			Name: at.name, Status: text(s.objects[p], "status"),
			ProviderID: "gce://" + at.project + "/" + strings.TrimPrefix(at.scope, "zones/") + "/" + at.name,
		})
	}
	return list
}

func (s *Sim) addNetwork(project, name string) {
	s.insert(location{project: project, scope: "global", collection: "networks", name: name}, document{
		"name": name, "autoCreateSubnetworks": false, "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
		"subnetworks": []any{linkTo("projects/" + project + "/regions/" + Region + "/subnetworks/" + Subnet)},
	})
}

func (s *Sim) addSubnet(project, network, name, cidr string) {
	s.insert(location{project: project, scope: "regions/" + Region, collection: "subnetworks", name: name}, document{
		"name": name, "network": linkTo("projects/" + project + "/global/networks/" + network), "ipCidrRange": cidr, "gatewayAddress": "10.128.0.1",
		"privateIpGoogleAccess": false, "privateIpv6GoogleAccess": "DISABLE_GOOGLE_ACCESS", "purpose": "PRIVATE", "stackType": "IPV4_ONLY",
		"fingerprint": "abcdef0123A=",
	})
}

// AddNetwork makes a network with a subnet in a project.
func (s *Sim) AddNetwork(project, network, subnet, cidr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addNetwork(project, network)
	s.addSubnet(project, network, subnet, cidr)
}

func (s *Sim) listMembers(r *http.Request, at location) (document, *refusal) {
	at.action = ""
	d, ok := s.objects[at.path()]
	if !ok {
		return nil, notFound(at.path())
	}
	var all []document
	for _, m := range textsOf(d["members"]) {
		all = append(all, document{"instance": m, "status": "RUNNING"})
	}
	p, err := page(r, at, "compute#instanceGroupsListInstances", all)
	if err == nil {
		delete(p, "selfLink")
	}
	return p, err
}
