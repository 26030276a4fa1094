package azure

import (
	"cmp"
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// indexMachine finds the primary network interface of a machine.
const indexMachine = "machine"

// networkInterface holds the fields of a network interface that we use.
type networkInterface struct {
	ID         string `json:"id"`
	Properties struct {
		Primary bool `json:"primary"`
		Machine *struct {
			ID string `json:"id"`
		} `json:"virtualMachine"`
		Configs []ipConfiguration `json:"ipConfigurations"`
	} `json:"properties"`
}

// ipConfiguration is an address of a network interface.
type ipConfiguration struct {
	Properties struct {
		Primary bool   `json:"primary"`
		Address string `json:"privateIPAddress"`
		Version string `json:"privateIPAddressVersion"`
		Public  *struct {
			ID string `json:"id"`
		} `json:"publicIPAddress"`
	} `json:"properties"`
}

// primary is the primary configuration of a version of IP, else the first; nil for none.
func (n networkInterface) primary(version string) *ipConfiguration {
	var first *ipConfiguration
	for i := range n.Properties.Configs {
		c := &n.Properties.Configs[i]
		if !strings.EqualFold(cmp.Or(c.Properties.Version, "IPv4"), version) || c.Properties.Address == "" {
			continue
		}
		if c.Properties.Primary {
			return c
		}
		if first == nil {
			first = c
		}
	}
	return first
}

// addresses are those of a network interface as a node's, the primary ones first.
func (n networkInterface) addresses() (list []v1.NodeAddress) {
	add := func(c ipConfiguration) {
		if a := (v1.NodeAddress{Type: v1.NodeInternalIP, Address: c.Properties.Address}); a.Address != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	for _, version := range []string{"IPv4", "IPv6"} {
		if c := n.primary(version); c != nil {
			add(*c)
		}
	}
	for _, c := range n.Properties.Configs {
		add(c)
	}
	return list
}

// machine is the ID of the machine whose primary network interface this is, in lower case.
func (n networkInterface) machine() []string {
	if n.Properties.Machine == nil || !n.Properties.Primary {
		return nil
	}
	return []string{strings.ToLower(n.Properties.Machine.ID)}
}

// publicAddress holds the fields of a machine's public address that we use.
type publicAddress struct {
	ID         string `json:"id"`
	Properties struct {
		Address string `json:"ipAddress"`
	} `json:"properties"`
}

// interfaces are the network interfaces and public addresses of machines.
type interfaces struct {
	api       *api
	groups    func() []string
	nics      *inventory.Inventory[string, networkInterface]
	addresses *inventory.Inventory[string, publicAddress]
}

func newInterfaces(a *api, groups func() []string) *interfaces {
	n := &interfaces{api: a, groups: groups}
	n.nics = inventory.New(inventory.Source[string, networkInterface]{
		Kind: "network interface", ID: func(i networkInterface) string { return strings.ToLower(i.ID) },
		Indexes: map[string]func(networkInterface) []string{indexMachine: networkInterface.machine},
		List: func(ctx context.Context) ([]networkInterface, int, error) {
			return listAll[networkInterface](ctx, n, listingOf("network interfaces", "networkInterfaces"))
		},
		Get: func(ctx context.Context, id string) (i networkInterface, err error) {
			return i, n.api.get(ctx, "network interface "+nameOf(id), id, versionOf(id), &i)
		},
	})
	n.addresses = inventory.New(inventory.Source[string, publicAddress]{
		Kind: "public address of a machine", ID: func(p publicAddress) string { return strings.ToLower(p.ID) },
		List: func(ctx context.Context) ([]publicAddress, int, error) {
			return listAll[publicAddress](ctx, n, listingOf("public addresses", "publicIPAddresses"))
		},
		Get: func(ctx context.Context, id string) (p publicAddress, err error) {
			return p, n.api.get(ctx, "public address "+nameOf(id), id, versionOf(id), &p)
		},
	})
	return n
}

// versionOf is the version of the API for a resource of the network, which may belong to a scale set.
func versionOf(id string) string {
	if strings.Contains(strings.ToLower(id), "/virtualmachinescalesets/") {
		return setVersion
	}
	return networkVersion
}

// listing is a kind of resources, which Azure lists by resource group, and apart by uniform scale set.
type listing struct {
	// what and setWhat name the two in errors.
	what, setWhat       string
	path                string
	version, setVersion string
	setQuery            []string
}

// listingOf lists resources of the network.
func listingOf(what, kind string) listing {
	return listing{what: what, setWhat: what, path: "Microsoft.Network/" + kind, version: networkVersion, setVersion: setVersion}
}

// listAll lists all resource groups that hold machines of nodes, and their uniform scale sets.
func listAll[T any](ctx context.Context, n *interfaces, l listing) (all []T, pages int, err error) {
	for _, group := range n.groups() {
		found, count, err := listGroup[T](ctx, n, l, group)
		pages += count
		switch {
		case err == nil:
		case group != n.api.config.Group && isSkippedGroup(err):
			klog.ErrorS(err, "A resource group that the label of a Node names is left out", "label", labelGroup, "resourceGroup", group)
		default:
			return nil, pages, err
		}
		all = append(all, found...)
	}
	return all, pages, nil
}

// listGroup lists one resource group. With an error it returns the part that was read.
func listGroup[T any](ctx context.Context, n *interfaces, l listing, group string) (all []T, pages int, err error) {
	c := n.api.config
	provider, kind, _ := strings.Cut(l.path, "/")
	if c.VMType != vmTypeSets || !c.OnlyScaleSets || c.FlexToo {
		all, pages, err = list[T](ctx, n.api, l.what, groupPath(c.Subscription, group, provider)+"/"+kind, l.version)
	}
	if err != nil || c.VMType == vmTypeStandard {
		return all, pages, err
	}
	sets, count, err := n.scaleSets(ctx, group)
	pages += count
	for _, set := range sets {
		path := groupPath(c.Subscription, group, "Microsoft.Compute") + "/virtualMachineScaleSets/" + set + "/" + kind
		found, count, err := list[T](ctx, n.api, l.setWhat+" of scale set "+set, path, l.setVersion, l.setQuery...)
		pages += count
		if err != nil && !strings.EqualFold(codeOf(err), codeGone) {
			return all, pages, err
		}
		all = append(all, found...)
	}
	return all, pages, err
}

// scaleSets are the names of the uniform scale sets of a resource group.
func (n *interfaces) scaleSets(ctx context.Context, group string) (names []string, pages int, err error) {
	path := groupPath(n.api.config.Subscription, group, "Microsoft.Compute") + "/virtualMachineScaleSets"
	sets, pages, err := list[scaleSet](ctx, n.api, "scale sets", path, computeVersion)
	for _, s := range sets {
		if s.uniform() && s.Name != "" {
			names = append(names, s.Name)
		}
	}
	return names, pages, err
}
