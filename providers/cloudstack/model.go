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
	"unicode"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// This file computes the desired state, without calls.

const (
	protocolTCP   = "tcp"
	protocolUDP   = "udp"
	protocolProxy = "tcp-proxy"

	algorithmRoundRobin = "roundrobin"
	algorithmSource     = "source"

	stateDeleting = "Deleting"
)

// rule is a load balancer rule: it forwards one port of an address to virtual machines.
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

// transport returns the protocol as firewalls name it.
func (r rule) transport() string { return transport(r.Protocol) }

func transport(protocol string) string {
	if protocol == protocolProxy {
		return protocolTCP
	}
	return protocol
}

// port returns the public port of a rule, or 0 if malformed.
func (r rule) port() int { n, _ := strconv.Atoi(r.PublicPort); return n }

// marks returns the words of the description, which include our marks.
func (r rule) marks() []string { return strings.Fields(r.Description) }

// ruleName matches names that controllers give: load balancer, protocol and port. The in-tree provider of Kubernetes omitted the protocol.
var ruleName = regexp.MustCompile(`^(.+?)-(?:(?:tcp|udp|tcp-proxy)-)?[0-9]{1,5}$`)

// owner returns the load balancer's name in a rule's name, or "".
func (r rule) owner() string {
	match := ruleName.FindStringSubmatch(r.Name)
	if match == nil {
		return ""
	}
	return match[1]
}

// loadBalancerName follows CloudStack's own controller.
func loadBalancerName(_ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// cidrs parses a list of networks, separated by blanks or commas, and clears host bits. An empty list means all networks.
func cidrs(text string) []string {
	list := strings.FieldsFunc(text, func(c rune) bool { return c == ',' || unicode.IsSpace(c) })
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

// wantedRule is a desired rule.
type wantedRule struct {
	Name, Protocol, Algorithm string
	Port, NodePort            int
	CIDRs                     []string
}

type desired struct {
	rules []wantedRule
	// sources are the networks that the firewall admits.
	sources     []string
	description string
	backends    backends
	// cidrsInPlace is set if the networks of a rule can be changed.
	cidrsInPlace bool
}

// wantedRules returns the rules of a Service.
func wantedRules(service *v1.Service, s settings) []wantedRule {
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
	slices.SortStableFunc(list, func(a, b wantedRule) int { return cmp.Compare(a.Port, b.Port) })
	return list
}

// compare returns how a rule differs from the desired one, and whether it must be created again.
func (r rule) compare(w wantedRule, inPlace bool) (differs []string, recreate bool) {
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

// matchRules divides the rules into those that serve a wanted port at the address, by public port, and obsolete ones.
func matchRules(rules []rule, addressID string, wanted []wantedRule) (serving map[int]rule, obsolete []rule) {
	serving = map[int]rule{}
	// rank puts rules with the right name first.
	rank := func(r rule) int {
		if slices.ContainsFunc(wanted, func(w wantedRule) bool { return w.Name == r.Name && w.Port == r.port() }) {
			return 0
		}
		return 1
	}
	sorted := slices.SortedFunc(slices.Values(rules), func(a, b rule) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a.ID, b.ID)) })
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

// addressOf returns the ID and text of the address that most rules have.
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

// network is a guest network.
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

// typeShared is the type of networks shared by accounts.
const typeShared = "Shared"

const (
	serviceLB       = "Lb"
	serviceFirewall = "Firewall"
	serviceACL      = "NetworkACL"
)

// key identifies the lock of a network: its VPC, whose tiers share addresses, or itself.
func (n network) key() string { return cmp.Or(n.VPC, n.ID) }

// filter is how a network admits traffic.
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

// refusesUDP reports whether virtual routers are the load balancers. They refuse UDP although the network claims to support it.
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

// firewallRule admits traffic to ports of an address.
type firewallRule struct {
	ID        string `json:"id"`
	Protocol  string `json:"protocol"`
	Start     int    `json:"startport"`
	End       int    `json:"endport"`
	CIDRs     string `json:"cidrlist"`
	AddressID string `json:"ipaddressid"`
	State     string `json:"state"`
}

// opens reports whether a firewall rule is about exactly one port.
func (f firewallRule) opens(protocol string, port int) bool {
	return strings.EqualFold(f.Protocol, protocol) && f.Start == port && f.End == port
}

// firewallOf returns the networks that a port's firewall rules lack, and the surplus rules. These carry no marks, so each rule that admits
// other networks is surplus: former source ranges would otherwise stay open.
func firewallOf(all []firewallRule, addressID, protocol string, port int, sources []string) (missing []string, surplus []firewallRule) {
	missing = slices.Clone(sources)
	for _, f := range all {
		list := cidrs(f.CIDRs)
		switch {
		case f.AddressID != addressID || !f.opens(protocol, port) || f.State == stateDeleting:
		case !slices.ContainsFunc(list, func(c string) bool { return !slices.Contains(sources, c) }):
			missing = slices.DeleteFunc(missing, func(c string) bool { return slices.Contains(list, c) })
		default:
			surplus = append(surplus, f)
		}
	}
	return missing, surplus
}

// allWithin reports whether each network lies in one of the sources.
func allWithin(list, sources []string) bool {
	return !slices.ContainsFunc(list, func(text string) bool {
		inner, err := netip.ParsePrefix(text)
		return err != nil || !slices.ContainsFunc(sources, func(source string) bool {
			outer, err := netip.ParsePrefix(source)
			return err == nil && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
		})
	})
}

// commonNetworks returns networks that also occur in firewall rules: the API refuses two rules of one port with the same network.
func commonNetworks(rules []firewallRule, list []string) (common []string) {
	for _, f := range rules {
		common = append(common, slices.DeleteFunc(cidrs(f.CIDRs), func(c string) bool { return !slices.Contains(list, c) })...)
	}
	slices.Sort(common)
	return slices.Compact(common)
}

type backends struct {
	// members belong behind each rule, sorted; doubtful ones stay if they are there.
	members, doubtful []string
}

// memberDifference compares a rule's members with the desired ones.
func (b backends) memberDifference(members []string) (missing, surplus []string) {
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

// networkOf selects the network with most of the virtual machines, and among equals the one with most default interfaces.
func networkOf(machines []machine) string {
	in, byDefault := map[string]int{}, map[string]int{}
	for _, m := range machines {
		for i, n := range m.vm.nics() {
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

func statusOf(ip string, s settings) *v1.LoadBalancerStatus {
	if s.Hostname != "" {
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: s.Hostname}}}
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: ip}}}
}

// timeForm is the API's time format.
const timeForm = "2006-01-02T15:04:05-0700"

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
	// HasRules is nil if this release of CloudStack does not provide it.
	HasRules *bool `json:"hasrules"`
}

// isFree reports whether nobody has acquired an address.
func (a address) isFree() bool { return a.Allocated == "" && (a.State == "" || a.State == "Free") }

func (a address) isReady() bool { return a.State == "" || a.State == "Allocated" }

// isAcquiredSince reports whether an address was acquired at or after a time.
func (a address) isAcquiredSince(t time.Time) bool {
	at, err := time.Parse(timeForm, a.Allocated)
	return err == nil && !at.Before(t.Truncate(time.Second))
}

// isReserved reports whether an address has another purpose than rules.
func (a address) isReserved() bool { return a.SourceNAT || a.StaticNAT || a.System }

// key identifies the lock of the address's network.
func (a address) key() string { return cmp.Or(a.VPC, a.NetworkID, a.ID) }

// belongsTo reports whether an address is in a network or its VPC.
func (a address) belongsTo(n network) bool {
	if n.VPC != "" {
		return a.VPC == n.VPC && (a.NetworkID == "" || a.NetworkID == n.ID)
	}
	return a.NetworkID == n.ID
}

// Forms of annotationRecord besides the ID of an acquired address.
const (
	// requestPrefix precedes the time of a request, so that its address is found if the response is lost.
	requestPrefix = "asked@"
	// keepPrefix precedes the ID of an address that was not acquired for the Service. It is never released.
	keepPrefix = "given@"
	// sealMark precedes the seal, which users cannot forge.
	sealMark = "/"
)

type record struct {
	// id is the address; keep means that it was not acquired for the Service.
	id   string
	keep bool
	// requestedAt is the time of a request whose result is unknown.
	requestedAt time.Time
	// text is the sealed text; seal proves that this program wrote it for the Service.
	text, seal string
}

// recordForm has the address or the time of a request, and the seal.
const recordForm = `(?:(?:given@)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|asked@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)(?:/[0-9a-f]{32})?`

var recordPattern = regexp.MustCompile("^" + recordForm + "$")

// recordOf returns a Service's record, or an empty one.
func recordOf(service *v1.Service) (r record) {
	text := strings.TrimSpace(service.Annotations[annotationRecord])
	if !recordPattern.MatchString(text) {
		return record{}
	}
	r.text, r.seal, _ = strings.Cut(text, sealMark)
	if when, ok := strings.CutPrefix(r.text, requestPrefix); ok {
		r.requestedAt, _ = time.Parse(time.RFC3339, when)
		return r
	}
	r.id, r.keep = strings.CutPrefix(r.text, keepPrefix)
	return r
}

// isSealedBy reports whether a record has a valid seal for the Service and, unless it is a request, for the address as last acquired.
func (r record) isSealedBy(key string, service *v1.Service, a address) bool {
	return r.seal != "" && hmac.Equal([]byte(r.seal), []byte(seal(key, service, r.text, a)))
}

// seal returns the proof that a record is this program's. It covers the time when the address was acquired, so that no record outlives a
// release, and the Service's status while it requests one, so that an answered request is not repeated.
func seal(key string, service *v1.Service, text string, a address) string {
	parts := []string{"anyccm.io/cloudstack-address-id", string(service.UID), text}
	if strings.HasPrefix(text, requestPrefix) {
		for _, in := range service.Status.LoadBalancer.Ingress {
			parts = append(parts, in.IP, in.Hostname)
		}
	} else if at, err := time.Parse(timeForm, a.Allocated); err == nil {
		parts = append(parts, strconv.FormatInt(at.Unix(), 10))
	}
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = mac.Write([]byte(strings.Join(parts, "\n"))) // never fails
	return hex.EncodeToString(mac.Sum(nil)[:sealLength])
}

// sealLength is in bytes.
const sealLength = 16

// officialAcquireWindow bounds how long after a Service's creation CloudStack's own controller acquired its address. That controller sets
// no marks, so addresses acquired at other times may be anybody's.
const officialAcquireWindow = 10 * time.Minute

// clockTolerance allows for a difference between the clocks of the cloud and the API server.
const clockTolerance = 30 * time.Second

// isAcquiredFor decides whether an address was acquired for the Service and is released with it. Nothing that users can write may cause
// that; sealed is our own record.
func isAcquiredFor(service *v1.Service, s settings, sealed record, rules []rule, a address, clockOffset time.Duration) bool {
	created := service.CreationTimestamp.Add(clockOffset)
	switch {
	case s.KeepIP, a.ID == "":
		return false
	case sealed.id == a.ID:
		return !sealed.keep
	case slices.ContainsFunc(rules, func(r rule) bool { return slices.Contains(r.marks(), addressMark(a.ID)) }):
		return true
	case s.Address != "":
		return false // only an annotation says that it was acquired
	case !a.isAcquiredSince(created.Add(-clockTolerance)) || a.isAcquiredSince(created.Add(officialAcquireWindow)):
		return false
	}
	// That controller records nothing if it acquires any address; we always do.
	return slices.ContainsFunc(rules, func(r rule) bool { return r.AddressID == a.ID && len(r.marks()) == 0 })
}

const textNotOurs = "was not written by this program for this Service and address"

// claimOf returns unproved evidence that an address was acquired for the Service, or "".
func claimOf(service *v1.Service, s settings, rules []rule, a address) string {
	switch {
	case s.KeepIP, a.ID == "":
		return ""
	case recordOf(service).id == a.ID && !recordOf(service).keep:
		return "annotation " + annotationRecord + " " + textNotOurs
	case s.Associated && s.Address == a.IP:
		return "nothing but annotation " + annotationAssociated + " says that it was taken for this Service"
	case s.Address == "" &&
		slices.ContainsFunc(rules, func(r rule) bool { return r.AddressID == a.ID && len(r.marks()) == 0 }):
		return "it was given to the account at another time than that of this Service's creation, so that it may be somebody else's"
	}
	return ""
}

// addressMark is in the description of rules at an address acquired for their Service.
func addressMark(id string) string { return "anyccm-address:" + id }

func statusShows(service *v1.Service, ip string) bool {
	return ip != "" && slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool { return in.IP == ip })
}
