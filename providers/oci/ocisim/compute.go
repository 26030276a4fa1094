package ocisim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	prefix  = "oci://"
	domains = 3
	subnets = 3
	// Subnets of load balancers come after those of nodes: two of the whole region, of which the second has IPv6, and two of a domain each.
	allSubnets = 7
	attached   = "ATTACHED"
)

// Instance is a compute instance with its network interfaces.
type Instance struct {
	ID                 string            `json:"id"`
	Name               string            `json:"displayName"`
	Compartment        string            `json:"compartmentId"`
	AvailabilityDomain string            `json:"availabilityDomain"`
	FaultDomain        string            `json:"faultDomain,omitempty"`
	Region             string            `json:"region"`
	Shape              string            `json:"shape"`
	State              string            `json:"lifecycleState"`
	Created            string            `json:"timeCreated"`
	Tags               map[string]string `json:"freeformTags"`
	// Defined are the defined tags by namespace.
	Defined map[string]map[string]string `json:"definedTags"`

	vnics []VNIC
}

// VNIC is a network interface.
type VNIC struct {
	ID        string   `json:"id"`
	Owner     string   `json:"compartmentId"`
	Domain    string   `json:"availabilityDomain"`
	Created   string   `json:"timeCreated"`
	Subnet    string   `json:"subnetId"`
	State     string   `json:"lifecycleState"`
	Primary   bool     `json:"isPrimary"`
	PrivateIP string   `json:"privateIp,omitempty"`
	PublicIP  string   `json:"publicIp,omitempty"`
	Hostname  string   `json:"hostnameLabel,omitempty"`
	IPv6      []string `json:"ipv6Addresses,omitempty"`
	// Reserved is set where the public address is one.
	Reserved bool `json:"-"`
	// Attachment is the state of the attachment.
	Attachment string `json:"-"`
}

// domainName is the name of one of the availability domains, which are counted from 0.
func domainName(n int) string { return fmt.Sprintf("Uocm:PHX-AD-%d", n+1) }

// SubnetID is the OCID of one of the subnets, which have numbers from 1.
func SubnetID(n int) string { return fmt.Sprintf("ocid1.subnet.oc1.phx.aaaasubnet%d", n) }

// AddInstance starts an instance with a network interface and returns its OCID.
func (s *Sim) AddInstance(name string) string { return s.Add(name, nil) }

// Add starts an instance that is changed before anybody sees it.
func (s *Sim) Add(name string, change func(*Instance)) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	n := s.number
	i := &Instance{
		ID: fmt.Sprintf("ocid1.instance.oc1.phx.anyhqljt%06d", n), Name: name, Compartment: Compartment, Region: regionShown,
		AvailabilityDomain: domainName(n % domains), FaultDomain: fmt.Sprintf("FAULT-DOMAIN-%d", n%domains+1),
		Shape: "VM.Standard.E4.Flex", State: "RUNNING", Created: "2026-01-01T00:00:00.000Z", Tags: map[string]string{},
	}
	i.vnics = []VNIC{s.card(n, true)}
	if change != nil {
		change(i)
	}
	return s.VMs.Put(i.ID, i).ID
}

func (*Sim) card(n int, primary bool) VNIC {
	v := VNIC{
		ID: fmt.Sprintf("ocid1.vnic.oc1.phx.abyhqljt%06d", n), Subnet: SubnetID(n%subnets + 1), State: "AVAILABLE", Primary: primary,
		PrivateIP: fmt.Sprintf("10.0.%d.%d", n%subnets*subnetSize+n/250, n%250+2),
		PublicIP:  fmt.Sprintf("129.146.%d.%d", n/250, n%250+2), Attachment: attached,
	}
	if !primary {
		v.ID = strings.Replace(v.ID, "abyhqljt", "aasecond", 1) // sorted before the primary one
		v.PrivateIP, v.PublicIP = strings.Replace(v.PrivateIP, "10.0.", "10.9.", 1), ""
	}
	return v
}

// Interfaces changes the network interfaces of an instance, within Add.
func (i *Instance) Interfaces(change func([]VNIC) []VNIC) { i.vnics = change(i.vnics) }

// SecondInterface returns one more network interface for an instance.
func (s *Sim) SecondInterface(number int) VNIC { return s.card(number, false) }

// SecondInterfaceOf returns one more network interface for the instance of another one.
func (*Sim) SecondInterfaceOf(v VNIC) VNIC {
	v.ID, v.Primary, v.PublicIP = strings.Replace(v.ID, "abyhqljt", "aasecond", 1), false, ""
	return v
}

// Terminate ends an instance, which the cloud goes on showing for a while.
func (s *Sim) Terminate(id string) error {
	return s.Change(id, func(i *Instance) { i.State, i.vnics = "TERMINATED", nil })
}

func (s *Sim) ofVNIC(id string) *Instance {
	for _, i := range s.VMs.ByID {
		if i.vnic(id) != nil {
			return i
		}
	}
	return nil
}

func (i *Instance) vnic(id string) *VNIC {
	at := slices.IndexFunc(i.vnics, func(v VNIC) bool { return v.ID == id })
	if at < 0 {
		return nil
	}
	v := i.vnics[at]
	v.Owner, v.Domain, v.Created = i.Compartment, i.AvailabilityDomain, i.Created
	return &v
}

// subnetSize is how many networks of 256 addresses a subnet of nodes has.
const subnetSize = 64

// BalancerSubnet is the subnet of load balancers, of the whole region.
func BalancerSubnet() string { return SubnetID(subnets + 1) }

// DualSubnet is one of the whole region with IPv6.
func DualSubnet() string { return SubnetID(subnets + 2) }

// DomainSubnets are of one availability domain each.
func DomainSubnets() (first, second string) { return SubnetID(subnets + 3), SubnetID(subnets + 4) }

// RemoveSubnet makes a subnet vanish.
func (s *Sim) RemoveSubnet(id string) { s.mu.Do(func() { s.noSubnets = append(s.noSubnets, id) }) }

func (s *Sim) subnet(id string) (map[string]any, bool) {
	for n := 1; n <= allSubnets; n++ {
		if SubnetID(n) != id || slices.Contains(s.noSubnets, id) {
			continue
		}
		d := map[string]any{
			"id": id, "vcnId": VCN, "compartmentId": Compartment, "cidrBlock": fmt.Sprintf("10.0.%d.0/18", (n-1)*subnetSize), "lifecycleState": "AVAILABLE",
			"routeTableId": "ocid1.routetable.oc1.phx.aaaa", "virtualRouterMac": "00:00:00:00:00:01", "securityListIds": []string{DefaultList},
		}
		if n > subnets {
			d["cidrBlock"], d["securityListIds"] = fmt.Sprintf("10.0.%d.0/24", subnets*subnetSize+n), []string{NewerList, BalancerList}
		}
		switch id {
		case DualSubnet():
			d["ipv6CidrBlock"], d["ipv6CidrBlocks"] = "2603:c020:0:5::/64", []string{"2603:c020:0:5::/64"}
		case SubnetID(subnets + 3), SubnetID(subnets + 4): //nolint:mnd // those of DomainSubnets
			d["availabilityDomain"] = domainName(n - subnets - 3)
		}
		return d, true
	}
	return nil, false
}

func (s *Sim) hasCompartment(id string) bool {
	return id == Compartment || slices.ContainsFunc(s.VMs.All(), func(i *Instance) bool { return i.Compartment == id })
}

// refusal is why the parameters of a listing do not fit together, or "".
func refusal(kind string, query url.Values) string {
	switch kind {
	case "privateIps", "ipv6":
		if !query.Has("subnetId") && !query.Has("vnicId") && !query.Has("ipAddress") {
			return "one of subnetId, vnicId and ipAddress is needed"
		}
	case "publicIps":
		if scope := query.Get("scope"); scope != "REGION" && scope != "AVAILABILITY_DOMAIN" {
			return "scope is REGION or AVAILABILITY_DOMAIN"
		}
		if (query.Get("scope") == "AVAILABILITY_DOMAIN") != query.Has("availabilityDomain") {
			return "availabilityDomain goes with the scope AVAILABILITY_DOMAIN"
		}
	}
	return ""
}

// items returns a whole listing, before it is divided into pages.
func (s *Sim) items(kind string, query url.Values) (items []any) {
	fits := func(name, value string) bool { return query.Get(name) == "" || query.Get(name) == value }
	if kind == "availabilityDomains" {
		for n := range domains {
			items = append(items, map[string]any{
				"name": domainName(n), "id": fmt.Sprintf("ocid1.availabilitydomain.oc1..aaaadomain%d", n+1), "compartmentId": query.Get("compartmentId"),
			})
		}
		return items
	}
	for _, i := range s.VMs.All() {
		if !fits("compartmentId", i.Compartment) || !fits("availabilityDomain", i.AvailabilityDomain) {
			continue
		}
		if kind == "instances" {
			if fits("displayName", i.Name) && fits("lifecycleState", i.State) {
				items = append(items, i)
			}
			continue
		}
		for n, v := range i.vnics {
			if fits("vnicId", v.ID) && fits("subnetId", v.Subnet) && fits("instanceId", i.ID) {
				items = append(items, i.shown(kind, query, n, v)...)
			}
		}
	}
	return items
}

// shown returns a network interface as listings show it.
func (i *Instance) shown(kind string, query url.Values, number int, v VNIC) []any {
	private := strings.Replace(v.ID, ".vnic.", ".privateip.", 1)
	switch kind {
	case "vnicAttachments":
		a := map[string]any{
			"id": strings.Replace(v.ID, ".vnic.", ".vnicattachment.", 1), "instanceId": i.ID, "compartmentId": i.Compartment,
			"availabilityDomain": i.AvailabilityDomain, "lifecycleState": v.Attachment, "timeCreated": i.Created, "subnetId": v.Subnet,
			"nicIndex": number,
		}
		if v.Attachment != "ATTACHING" {
			a["vnicId"] = v.ID
		}
		return []any{a}
	case "privateIps":
		if v.PrivateIP == "" {
			return nil
		}
		return []any{map[string]any{
			"id": private, "ipAddress": v.PrivateIP, "vnicId": v.ID, "subnetId": v.Subnet, "isPrimary": true, "hostnameLabel": v.Hostname,
			"compartmentId": i.Compartment, "availabilityDomain": i.AvailabilityDomain,
		}}
	case "ipv6":
		var all []any
		for n, address := range v.IPv6 {
			all = append(all, map[string]any{
				"id": fmt.Sprintf("%s-%d", strings.Replace(v.ID, ".vnic.", ".ipv6.", 1), n), "ipAddress": address, "vnicId": v.ID, "subnetId": v.Subnet,
			})
		}
		return all
	case "publicIps":
		regional := query.Get("scope") == "REGION"
		if v.PublicIP == "" || v.Reserved != regional {
			return nil
		}
		lifetime := map[bool]string{true: "RESERVED", false: "EPHEMERAL"}[v.Reserved]
		if query.Get("lifetime") != "" && query.Get("lifetime") != lifetime {
			return nil
		}
		return []any{map[string]any{
			"id": strings.Replace(v.ID, ".vnic.", ".publicip.", 1), "ipAddress": v.PublicIP, "assignedEntityId": private, "privateIpId": private,
			"assignedEntityType": "PRIVATE_IP", "lifecycleState": "ASSIGNED", "scope": query.Get("scope"), "lifetime": lifetime,
		}}
	}
	return nil
}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	s.listsOnce()
	// What is deleted is shown by the API alone, for a while.
	balancers := slices.DeleteFunc(slices.Clone(s.balancers), func(lb *LoadBalancer) bool { return lb.State == stateDeleted })
	nlbs := slices.DeleteFunc(slices.Clone(s.nlbs), func(lb *NetworkLoadBalancer) bool { return lb.State == stateDeleted })
	return simkit.Snapshot(map[string]any{
		"instances": s.VMs.All(), "loadBalancers": balancers, "networkLoadBalancers": nlbs, "securityLists": guardedState(s.lists),
		"networkSecurityGroups": guardedState(s.groups), "reservedAddresses": reservedState(s.reserved),
	})
}

// Instances implements simkit.Cloud. Those that are terminated are shown by the API alone.
func (s *Sim) Instances() []simkit.Instance {
	return slices.DeleteFunc(s.Machines.Instances(), func(i simkit.Instance) bool { return i.Status == "TERMINATED" })
}

// RemoveInstance implements simkit.Cloud.
func (s *Sim) RemoveInstance(name string) error {
	return simkit.RemoveNamed(name, s.Instances(), func(id string) error { return s.Terminate(strings.TrimPrefix(id, prefix)) })
}

// Holdings implements simkit.Cloud: load balancers, with their listeners and how many nodes each of their backend sets has at least.
func (s *Sim) Holdings() []string {
	lines := []string{}
	for _, lb := range s.LoadBalancers() {
		lines = append(lines, "load balancer "+holding(lb.Name, lb.Doc))
	}
	for _, lb := range s.NetworkLoadBalancers() {
		lines = append(lines, "network load balancer "+holding(lb.Name, lb.Doc))
	}
	return lines
}

func holding(name string, doc document) string {
	listeners, _ := doc["listeners"].(document)
	sets, _ := doc["backendSets"].(document)
	nodes := -1
	for _, set := range sets {
		if backends, _ := set.(document)["backends"].([]any); nodes < 0 || len(backends) < nodes {
			nodes = len(backends)
		}
	}
	return fmt.Sprintf("%s, %s, %d nodes", name, strings.Join(slices.Sorted(maps.Keys(listeners)), ", "), max(nodes, 0))
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"power-off": simkit.SetStatus(s.SetStatus, "STOPPED"),
		"power-on":  simkit.SetStatus(s.SetStatus, "RUNNING"),
		"reserve-address": simkit.Action(func(in struct{ Address netip.Addr }) error {
			if !in.Address.Is4() {
				return errors.New("address is to be one of IPv4")
			}
			s.AddReserved(in.Address.String())
			return nil
		}),
		"make-group": simkit.Action(func(in struct{ Name string }) error {
			s.AddGroup(in.Name)
			return nil
		}),
	}
}
