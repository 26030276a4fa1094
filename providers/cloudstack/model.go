package cloudstack

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// This file computes and calls nobody: Service, nodes and settings make what is desired.

const (
	protocolTCP   = "tcp"
	protocolUDP   = "udp"
	protocolProxy = "tcp-proxy"

	algorithmRoundRobin = "roundrobin"
	algorithmSource     = "source"

	stateDeleting = "Deleting"
)

// rule is a load balancer rule: one port of an address that leads to a port of virtual machines.
type rule struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	AddressID   string `json:"publicipid"`
	Address     string `json:"publicip"`
	PublicPort  string `json:"publicport"`
	PrivatePort string `json:"privateport"`
	Algorithm   string `json:"algorithm"`
	Protocol    string `json:"protocol"`
	CIDRs       string `json:"cidrlist"`
	State       string `json:"state"`
	NetworkID   string `json:"networkid"`
}

// transport is the protocol of a rule as firewalls know it.
func (r rule) transport() string { return transport(r.Protocol) }

func transport(protocol string) string {
	if protocol == protocolProxy {
		return protocolTCP
	}
	return protocol
}

// port is the public port of a rule; 0 where it is none.
func (r rule) port() int { n, _ := strconv.Atoi(r.PublicPort); return n }

// marks are those of ours in the description.
func (r rule) marks() []string { return strings.Fields(r.Description) }

// ruleName is a name as controllers give it: that of the load balancer, the protocol, which the provider in Kubernetes left out, and the
// port.
var ruleName = regexp.MustCompile(`^(.+?)-(?:(?:tcp|udp|tcp-proxy)-)?[0-9]{1,5}$`)

// owner is the name of the load balancer that a rule belongs to, by its name alone; "" where it has another form.
func (r rule) owner() string {
	match := ruleName.FindStringSubmatch(r.Name)
	if match == nil {
		return ""
	}
	return match[1]
}

// loadBalancerName is the name that CloudStack's own controller gives.
func loadBalancerName(_ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// cidrs are the networks of a list, in whichever form the API has it: with blanks as they were created, with commas as they were changed.
// Bits of hosts are left out. None at all is everybody.
func cidrs(text string) []string {
	list := strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == ',' })
	if len(list) == 0 {
		list = []string{everybody}
	}
	for i, one := range list {
		if p, err := netip.ParsePrefix(one); err == nil {
			list[i] = p.Masked().String()
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// wantedRule is a rule as a Service asks for it.
type wantedRule struct {
	Name, Protocol, Algorithm string
	Port, NodePort            int
	CIDRs                     []string
}

// spec is the desired state of a Service.
type spec struct {
	name    string
	network network
	rules   []wantedRule
	// sources are the networks that the firewall lets in.
	sources []string
	// wanted is the address that the Service names, "" for any.
	wanted string
	// description marks new rules.
	description string
	backends    backends
	// inPlace is set where the networks of a rule can be changed.
	inPlace bool
	// sticky are the stickiness policies by public port.
	sticky map[int]stickiness
}

// desire returns the rules that a Service asks for.
func desire(service *v1.Service, s settings) []wantedRule {
	algorithm := algorithmRoundRobin
	if service.Spec.SessionAffinity == v1.ServiceAffinityClientIP {
		algorithm = algorithmSource
	}
	sources := cidrs(strings.Join(s.SourceCIDRs, ","))
	var list []wantedRule
	for _, p := range service.Spec.Ports {
		protocol := strings.ToLower(string(cmp.Or(p.Protocol, v1.ProtocolTCP)))
		if protocol == protocolTCP && s.ProxyProtocol {
			protocol = protocolProxy
		}
		list = append(list, wantedRule{
			Name: loadBalancerName("", service) + "-" + protocol + "-" + strconv.Itoa(int(p.Port)), Protocol: protocol, Algorithm: algorithm,
			Port: int(p.Port), NodePort: int(p.NodePort), CIDRs: sources,
		})
	}
	return list
}

// fits says how a rule differs from what is asked for: what can be changed where it is, and whether it has to be made again.
func (r rule) fits(w wantedRule, inPlace bool) (differs []string, again bool) {
	if r.PrivatePort != strconv.Itoa(w.NodePort) || r.transport() != transport(w.Protocol) {
		return []string{"node port or protocol"}, true
	}
	for what, same := range map[string]bool{
		"name": r.Name == w.Name, "protocol": r.Protocol == w.Protocol, "algorithm": r.Algorithm == w.Algorithm,
	} {
		if !same {
			differs = append(differs, what)
		}
	}
	slices.Sort(differs)
	if !slices.Equal(cidrs(r.CIDRs), w.CIDRs) {
		return append(differs, "networks that may reach it"), !inPlace
	}
	return differs, false
}

// matched divides the rules of a Service at its address: those that serve what is asked for, by public port, and those that do not.
func matched(rules []rule, addressID string, wanted []wantedRule) (serving map[int]rule, obsolete []rule) {
	serving = map[int]rule{}
	sorted := slices.Clone(rules)
	// A rule with the right name comes first; of two that are alike, always the same.
	exact := func(r rule) bool {
		return slices.ContainsFunc(wanted, func(w wantedRule) bool { return w.Name == r.Name && w.Port == r.port() })
	}
	slices.SortFunc(sorted, func(a, b rule) int {
		if exact(a) != exact(b) {
			if exact(a) {
				return -1
			}
			return 1
		}
		return strings.Compare(a.ID, b.ID)
	})
	for _, r := range sorted {
		_, taken := serving[r.port()]
		asked := slices.ContainsFunc(wanted, func(w wantedRule) bool { return w.Port == r.port() })
		if r.AddressID != addressID || taken || !asked {
			obsolete = append(obsolete, r)
			continue
		}
		serving[r.port()] = r
	}
	return serving, obsolete
}

// addressOf is the address of a Service's rules, by its ID and text: the one that most of them have.
func addressOf(rules []rule) (id, ip string) {
	counts := map[string]int{}
	texts := map[string]string{}
	for _, r := range rules {
		counts[r.AddressID]++
		texts[r.AddressID] = r.Address
	}
	for _, candidate := range slices.Sorted(maps.Keys(counts)) {
		if id == "" || counts[candidate] > counts[id] {
			id = candidate
		}
	}
	return id, texts[id]
}

// networkService is one of the services that a network offers.
type networkService struct {
	Name      string `json:"name"`
	Providers []struct {
		Name string `json:"name"`
	} `json:"provider"`
	Capabilities []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"capability"`
}

// network is one of guests.
type network struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	Type     string           `json:"type"`
	CIDR     string           `json:"cidr"`
	VPC      string           `json:"vpcid"`
	ACL      string           `json:"aclid"`
	ACLName  string           `json:"aclname"`
	Services []networkService `json:"service"`
}

func (n network) offers(name string) bool {
	return slices.ContainsFunc(n.Services, func(s networkService) bool { return s.Name == name })
}

// typeShared is the type of networks that several accounts use.
const typeShared = "Shared"

// Services of networks.
const (
	serviceLB       = "Lb"
	serviceFirewall = "Firewall"
	serviceACL      = "NetworkACL"
)

// key names where jobs are done one after the other: the network, or the VPC whose addresses all of its tiers have.
func (n network) key() string { return cmp.Or(n.VPC, n.ID) }

// filter is the kind of rule that lets traffic into a network.
type filter int

const (
	// open networks, such as shared ones, filter nothing.
	open filter = iota
	byFirewall
	byACL
)

func (n network) filter() filter {
	switch {
	case n.offers(serviceFirewall):
		return byFirewall
	case n.offers(serviceACL) && n.ACL != "":
		return byACL
	}
	return open
}

// refusesUDP reports whether the load balancers of a network are those of virtual routers, which refuse UDP although the network says that
// it offers it.
func (n network) refusesUDP() bool {
	for _, s := range n.Services {
		if s.Name != serviceLB {
			continue
		}
		for _, p := range s.Providers {
			if p.Name == "VirtualRouter" || p.Name == "VpcVirtualRouter" {
				return true
			}
		}
	}
	return false
}

// firewallRule lets traffic to ports of an address in.
type firewallRule struct {
	ID        string `json:"id"`
	Protocol  string `json:"protocol"`
	Start     int    `json:"startport"`
	End       int    `json:"endport"`
	CIDRs     string `json:"cidrlist"`
	AddressID string `json:"ipaddressid"`
	State     string `json:"state"`
}

// opens reports whether a firewall rule is about one port, and no other.
func (f firewallRule) opens(protocol string, port int) bool {
	return strings.EqualFold(f.Protocol, protocol) && f.Start == port && f.End == port
}

// firewallOf compares the firewall rules of a port with the networks that may reach it: which of them no rule lets in, and which rules are
// too much. CloudStack has no mark for them, so that nobody knows who made one. Those are too much that let others in than the Service asks
// for: where they stayed, former source ranges would let clients in for ever. What lets in nobody else stays, until source ranges change or
// the port goes.
func firewallOf(all []firewallRule, addressID, protocol string, port int, sources []string) (missing []string, surplus []firewallRule) {
	missing = slices.Clone(sources)
	var parts []firewallRule
	for _, f := range all {
		list := cidrs(f.CIDRs)
		switch {
		case f.AddressID != addressID || !f.opens(protocol, port) || f.State == stateDeleting:
		case !slices.ContainsFunc(list, func(c string) bool { return !slices.Contains(sources, c) }):
			missing = slices.DeleteFunc(missing, func(c string) bool { return slices.Contains(list, c) })
		case within(list, sources):
			parts = append(parts, f)
		default:
			surplus = append(surplus, f)
		}
	}
	if len(missing) > 0 {
		surplus = append(surplus, parts...)
	}
	return missing, surplus
}

// within reports whether every network of a list is part of one of another list.
func within(list, sources []string) bool {
	return !slices.ContainsFunc(list, func(text string) bool {
		inner, err := netip.ParsePrefix(text)
		return err != nil || !slices.ContainsFunc(sources, func(source string) bool {
			outer, err := netip.ParsePrefix(source)
			return err == nil && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
		})
	})
}

// shared are the networks of a list that firewall rules have, too: the API does not allow that of two rules for one port.
func shared(rules []firewallRule, list []string) (both []string) {
	for _, f := range rules {
		both = append(both, slices.DeleteFunc(cidrs(f.CIDRs), func(c string) bool { return !slices.Contains(list, c) })...)
	}
	slices.Sort(both)
	return slices.Compact(both)
}

// backends are the virtual machines behind a load balancer.
type backends struct {
	// members are to be behind each rule, in order; doubtful ones stay if they are there.
	members, doubtful []string
}

// changesTo compares the members of a rule with those that should be.
func (b backends) changesTo(members []string) (missing, surplus []string) {
	for _, id := range b.members {
		if !slices.Contains(members, id) {
			missing = append(missing, id)
		}
	}
	for _, id := range members {
		if !slices.Contains(b.members, id) && !slices.Contains(b.doubtful, id) {
			surplus = append(surplus, id)
		}
	}
	return missing, surplus
}

// networkOf chooses the network of a load balancer: the one that most of the virtual machines are in, and of several of these the one that
// is most often that of the default route.
func networkOf(machines []vm) string {
	in, byDefault := map[string]int{}, map[string]int{}
	for _, v := range machines {
		for i, n := range v.nics() {
			if n.NetworkID == "" {
				continue
			}
			in[n.NetworkID]++
			if i == 0 {
				byDefault[n.NetworkID]++
			}
		}
	}
	best := ""
	for _, id := range slices.Sorted(maps.Keys(in)) {
		if best == "" || cmp.Or(cmp.Compare(in[id], in[best]), cmp.Compare(byDefault[id], byDefault[best])) > 0 {
			best = id
		}
	}
	return best
}

// statusOf is the status of a Service.
func statusOf(ip string, s settings) *v1.LoadBalancerStatus {
	if s.Hostname != "" {
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: s.Hostname}}}
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: ip}}}
}

// timeForm is how the API writes times.
const timeForm = "2006-01-02T15:04:05-0700"

// address is a public address.
type address struct {
	ID        string `json:"id"`
	IP        string `json:"ipaddress"`
	State     string `json:"state"`
	Allocated string `json:"allocated"`
	NetworkID string `json:"associatednetworkid"`
	VPC       string `json:"vpcid"`
	SourceNAT bool   `json:"issourcenat"`
	StaticNAT bool   `json:"isstaticnat"`
	System    bool   `json:"issystem"`
	// HasRules is nil where the release of CloudStack does not tell.
	HasRules *bool `json:"hasrules"`
}

// free reports whether nobody has an address.
func (a address) free() bool { return a.Allocated == "" && (a.State == "" || a.State == "Free") }

// ready reports whether an address can be used.
func (a address) ready() bool { return a.State == "" || a.State == "Allocated" }

// since reports whether an address was given to its account at a time or later.
func (a address) since(t time.Time) bool {
	at, err := time.Parse(timeForm, a.Allocated)
	return err == nil && !at.Before(t.Truncate(time.Second))
}

// reserved reports whether an address serves something else than rules.
func (a address) reserved() bool { return a.SourceNAT || a.StaticNAT || a.System }

// key is that of the network of an address.
func (a address) key() string { return cmp.Or(a.VPC, a.NetworkID, a.ID) }

// belongsTo reports whether an address is in a network, or in its VPC.
func (a address) belongsTo(n network) bool {
	if n.VPC != "" {
		return a.VPC == n.VPC && (a.NetworkID == "" || a.NetworkID == n.ID)
	}
	return a.NetworkID == n.ID
}

// Forms of annotationRecord beside the ID of an address that was taken for the Service.
const (
	// askedPrefix is before the time at which an address was asked for, so that it is found again if the answer was lost.
	askedPrefix = "asked@"
	// givenPrefix is before the ID of an address that was not taken for the Service: it is used, and never released.
	givenPrefix = "given@"
	// sealMark is before the seal, which the author of a Service cannot make.
	sealMark = "/"
)

// record is the parsed annotationRecord.
type record struct {
	// id is that of the address; given says that it was not taken for the Service.
	id    string
	given bool
	// asked is when one was asked for, of which nobody knows the ID yet.
	asked time.Time
	// text is the sealed text; seal proves that this program wrote it for the Service.
	text, seal string
}

func recordOf(text string) (r record) {
	r.text, r.seal, _ = strings.Cut(text, sealMark)
	if when, ok := strings.CutPrefix(r.text, askedPrefix); ok {
		r.asked, _ = time.Parse(time.RFC3339, when)
		return r
	}
	id, given := strings.CutPrefix(r.text, givenPrefix)
	if uuidForm.MatchString(id) {
		r.id, r.given = id, given
	}
	return r
}

// sealedBy reports whether a record was sealed with a key for a Service and, unless it is about a call that was not answered, for an
// address since it was given to its account.
func (r record) sealedBy(key string, service *v1.Service, a address) bool {
	return r.seal != "" && hmac.Equal([]byte(r.seal), []byte(seal(key, service, r.text, a)))
}

// seal returns the proof that a record is this program's. It covers the time when the address was acquired, so that no record outlives a
// release, and the Service's status while it requests one, so that an answered question is not asked again.
func seal(key string, service *v1.Service, text string, a address) string {
	parts := []string{"anyccm.io/cloudstack-address-id", string(service.UID), text}
	if strings.HasPrefix(text, askedPrefix) {
		for _, in := range service.Status.LoadBalancer.Ingress {
			parts = append(parts, in.IP, in.Hostname)
		}
	} else if at, err := time.Parse(timeForm, a.Allocated); err == nil {
		parts = append(parts, strconv.FormatInt(at.Unix(), 10))
	}
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = mac.Write([]byte(strings.Join(parts, "\n"))) // which never fails
	return hex.EncodeToString(mac.Sum(nil)[:sealLength])
}

// sealLength is that of a seal in bytes.
const sealLength = 16

// takenWith is how soon after the creation of a Service CloudStack's own controller took an address for it, at the latest. That controller
// marks nothing, so that one which was given to the account at another time may be anybody's.
const takenWith = 10 * time.Minute

// clockDoubt is how much earlier the cloud may say that such an address was given: its clock and that of the API server differ a little.
const clockDoubt = 30 * time.Second

// wasTakenFor decides whether the address that a Service has was taken for it, so that it goes with the Service. Releasing one takes
// everybody's rules with it: nothing that the author of a Service can write makes it true. sealed is the record where this program wrote
// it, and ahead how far the cloud's clock is ahead of ours.
func wasTakenFor(service *v1.Service, s settings, sealed record, rules []rule, a address, ahead time.Duration) bool {
	created := service.CreationTimestamp.Add(ahead)
	switch {
	case s.KeepIP, a.ID == "":
		return false
	case sealed.id == a.ID:
		return !sealed.given
	case slices.ContainsFunc(rules, func(r rule) bool { return slices.Contains(r.marks(), addressMark(a.ID)) }):
		return true
	case s.requestedAddress(service) != "":
		return false // that it was taken from the free ones is said by an annotation alone
	case !a.since(created.Add(-clockDoubt)) || a.since(created.Add(takenWith)):
		return false
	}
	// That controller writes nothing where it takes any address; we always do.
	return slices.ContainsFunc(rules, func(r rule) bool { return r.AddressID == a.ID && len(r.marks()) == 0 })
}

const notOurs = "was not written by this program for this Service and address"

// claimOf says what claims that an address was taken for a Service, without a proof; "" where nothing does.
func claimOf(service *v1.Service, s settings, rules []rule, a address) string {
	switch {
	case s.KeepIP, a.ID == "":
		return ""
	case recordOf(s.Record).id == a.ID && !recordOf(s.Record).given:
		return "annotation " + annotationRecord + " " + notOurs
	case s.Associated && s.requestedAddress(service) == a.IP:
		return "nothing but annotation " + annotationAssociated + " says that it was taken for this Service"
	case s.requestedAddress(service) == "" &&
		slices.ContainsFunc(rules, func(r rule) bool { return r.AddressID == a.ID && len(r.marks()) == 0 }):
		return "it was given to the account at another time than that of this Service's creation, so that it may be somebody else's"
	}
	return ""
}

// addressMark is in the description of rules at an address that was taken for their Service.
func addressMark(id string) string { return "anyccm-address:" + id }

func shows(service *v1.Service, ip string) bool {
	return ip != "" && slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool { return in.IP == ip })
}
