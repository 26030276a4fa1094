package guard

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	nodehelpers "k8s.io/cloud-provider/node/helpers"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Annotations of Nodes that choose among the addresses which the cloud reports.
const (
	// AnnotationAddressFamilies overrides --node-address-families for one Node.
	AnnotationAddressFamilies = "anyccm.io/node-address-families"
	// AnnotationAddressInclude overrides --node-address-include for one Node.
	AnnotationAddressInclude = "anyccm.io/node-address-include"
	// AnnotationAddressExclude overrides --node-address-exclude for one Node.
	AnnotationAddressExclude = "anyccm.io/node-address-exclude"
)

const (
	familyV4 = "ipv4"
	familyV6 = "ipv6"
)

// AddressPolicy selects and orders the addresses of Nodes. The zero value keeps them as the provider reports them, like the cloud's own
// controller. Names and DNS addresses are never changed.
type AddressPolicy struct {
	// Families are the families to keep, the preferred one first: the first address of a type is the primary one.
	Families []string
	// Include keeps the addresses inside these networks alone, where it is not empty.
	Include []string
	// Exclude drops the addresses inside these networks.
	Exclude []string
}

// AddFlags declares the flags of the policy.
func (p *AddressPolicy) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&p.Families, "node-address-families", p.Families, "IP families of Node addresses to report, the preferred one first: ipv4, ipv6, or both. Empty reports them as the provider orders them. Annotation of a Node: "+AnnotationAddressFamilies+".")
	fs.StringSliceVar(&p.Include, "node-address-include", p.Include, "Networks in CIDR form; only Node addresses inside one of them are reported. Annotation of a Node: "+AnnotationAddressInclude+".")
	fs.StringSliceVar(&p.Exclude, "node-address-exclude", p.Exclude, "Networks in CIDR form; Node addresses inside one of them are not reported. Annotation of a Node: "+AnnotationAddressExclude+".")
}

// Validate reports all invalid values.
func (p AddressPolicy) Validate() error {
	_, err := p.compile(func(name string) string { return "--node-address-" + name })
	return err
}

// chooser is a parsed policy.
type chooser struct {
	families         []string
	include, exclude []netip.Prefix
}

// compile parses a policy; place names a setting in messages.
func (p AddressPolicy) compile(place func(name string) string) (chooser, error) {
	c := chooser{families: p.Families}
	var problems []error
	for i, f := range p.Families {
		if (f != familyV4 && f != familyV6) || slices.Contains(p.Families[:i], f) {
			problems = append(problems, &schema.Problem{Place: place("families"), Value: strings.Join(p.Families, ","), Reason: "is not ipv4, ipv6 or both in an order"})
			break
		}
	}
	for _, list := range []struct {
		name string
		text []string
		into *[]netip.Prefix
	}{{"include", p.Include, &c.include}, {"exclude", p.Exclude, &c.exclude}} {
		for _, text := range list.text {
			network, err := netip.ParsePrefix(text)
			if err != nil {
				problems = append(problems, &schema.Problem{Place: place(list.name), Value: text, Reason: `is not a network; use a form such as "10.0.0.0/8"`})
				continue
			}
			*list.into = append(*list.into, network.Masked())
		}
	}
	return c, errors.Join(problems...)
}

// policyFor returns the policy for one Node: an annotation takes the place of the flag of the same name.
func (p AddressPolicy) policyFor(node *v1.Node) (chooser, error) {
	for key, list := range map[string]*[]string{
		AnnotationAddressFamilies: &p.Families, AnnotationAddressInclude: &p.Include, AnnotationAddressExclude: &p.Exclude,
	} {
		if text, ok := node.Annotations[key]; ok {
			*list = split(text)
		}
	}
	return p.compile(func(name string) string { return "annotation anyccm.io/node-address-" + name })
}

func split(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// choose returns the addresses of a Node that satisfy the policy, in its order.
func (p AddressPolicy) choose(node *v1.Node, all []v1.NodeAddress) ([]v1.NodeAddress, error) {
	c, err := p.policyFor(node)
	if err != nil {
		return nil, err
	}
	var kept []v1.NodeAddress
	internal := false
	for _, a := range all {
		if c.keeps(a) {
			kept = append(kept, a)
			internal = internal || a.Type == v1.NodeInternalIP || a.Type == v1.NodeExternalIP
		}
	}
	if !internal && len(all) > 0 {
		return nil, fmt.Errorf("no address of node %s is left: the cloud reports %s, and --node-address-families, --node-address-include or --node-address-exclude "+
			"or the Node's annotations of these names drop them all", node.Name, describe(all))
	}
	if len(c.families) == 2 {
		c.order(kept, v1.NodeInternalIP)
		c.order(kept, v1.NodeExternalIP)
	}
	return kept, nil
}

// order puts the preferred family of one type first. Only that matters to kubelet and kube-proxy; addresses of other types
// keep their places.
func (c chooser) order(all []v1.NodeAddress, kind v1.NodeAddressType) {
	var places []int
	var sorted []v1.NodeAddress
	for i, a := range all {
		if a.Type == kind {
			places, sorted = append(places, i), append(sorted, a)
		}
	}
	slices.SortStableFunc(sorted, func(a, b v1.NodeAddress) int { return c.rank(a) - c.rank(b) })
	for i, place := range places {
		all[place] = sorted[i]
	}
}

func describe(all []v1.NodeAddress) string {
	texts := make([]string, len(all))
	for i, a := range all {
		texts[i] = fmt.Sprintf("%s %s", a.Type, a.Address)
	}
	return strings.Join(texts, ", ")
}

func (c chooser) keeps(a v1.NodeAddress) bool {
	ip, ok := addressOf(a)
	if !ok {
		return true
	}
	inside := func(n netip.Prefix) bool { return n.Contains(ip) }
	return (len(c.families) == 0 || slices.Contains(c.families, familyOf(ip))) &&
		(len(c.include) == 0 || slices.ContainsFunc(c.include, inside)) && !slices.ContainsFunc(c.exclude, inside)
}

func (c chooser) rank(a v1.NodeAddress) int {
	ip, ok := addressOf(a)
	if !ok {
		return -1
	}
	return slices.Index(c.families, familyOf(ip))
}

// addressOf returns the IP of an address; names have none.
func addressOf(a v1.NodeAddress) (netip.Addr, bool) {
	if a.Type != v1.NodeInternalIP && a.Type != v1.NodeExternalIP {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(a.Address)
	return ip.Unmap(), err == nil
}

func familyOf(ip netip.Addr) string {
	if ip.Is4() {
		return familyV4
	}
	return familyV6
}

// hasAddresses reports whether a Node already has the addresses that the framework would write: the cloud's, with the Node's own hostname
// if the cloud names none, and of each type with a requested address (kubelet's --node-ip) only the requested. The API server groups
// addresses by type, so that only the order within a type counts.
func hasAddresses(node *v1.Node, cloud []v1.NodeAddress) bool {
	if len(cloud) == 0 {
		return true
	}
	wanted := slices.Clone(cloud)
	if !slices.ContainsFunc(cloud, func(a v1.NodeAddress) bool { return a.Type == v1.NodeHostName }) {
		for _, a := range node.Status.Addresses {
			if a.Type == v1.NodeHostName {
				wanted = append(wanted, a)
			}
		}
	}
	if requested, ok := node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr]; ok {
		chosen, err := nodehelpers.GetNodeAddressesFromNodeIP(requested, wanted)
		if err != nil {
			return false // the framework reports the fault
		}
		wanted = chosen
	}
	return maps.EqualFunc(byType(wanted), byType(node.Status.Addresses), slices.Equal[[]string])
}

// byType returns the addresses of each type in their order.
func byType(all []v1.NodeAddress) map[v1.NodeAddressType][]string {
	grouped := map[v1.NodeAddressType][]string{}
	for _, a := range all {
		grouped[a.Type] = append(grouped[a.Type], a.Address)
	}
	return grouped
}
