package gce

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// networkMaxAge is long, because a cluster's network rarely changes.
const networkMaxAge = 10 * time.Minute

// isAutoMode reports whether a subnet is in the range of auto mode networks. Users may have created others.
func isAutoMode(cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && netip.MustParsePrefix("10.128.0.0/9").Contains(p.Addr())
}

// network holds the properties of the cluster's network that matter to internal load balancers.
type network struct {
	legacy bool
	name   string
	// subnets are the paths of the subnets in the region; in an auto mode network those that the cloud made.
	subnets []string
}

func newNetworks(a *api) *store[network] {
	return inventory.New(inventory.Source[string, network]{Kind: "network", ID: func(n network) string { return n.name }, Get: a.network})
}

func (a *api) network(ctx context.Context, name string) (n network, err error) {
	at, err := a.locator.get(ctx)
	if err != nil {
		return n, err
	}
	found, err := a.sdk.Networks.Get(at.networkProject, name).Context(ctx).
		Fields("name", "subnetworks", "IPv4Range", "autoCreateSubnetworks").Do()
	if err == nil && found.Name != name {
		err = cloudapi.ErrWrongAnswer
	}
	if err != nil {
		return n, cloudapi.NotAbsence(apiError(err, "reading network "+name))
	}
	n = network{legacy: found.IPv4Range != "", name: found.Name}
	for _, link := range found.Subnetworks {
		if strings.Contains(link, "/regions/"+at.region+"/") {
			n.subnets = append(n.subnets, resource(link))
		}
	}
	if !found.AutoCreateSubnetworks || len(n.subnets) < 2 {
		return n, nil
	}
	var autoMode []string
	for _, path := range n.subnets {
		subnet, err := a.sdk.Subnetworks.Get(at.networkProject, at.region, lastPart(path)).Context(ctx).Fields("name", "ipCidrRange").Do()
		if err == nil && subnet.Name != lastPart(path) {
			err = cloudapi.ErrWrongAnswer
		}
		if err != nil {
			return n, cloudapi.NotAbsence(apiError(err, "reading subnet "+lastPart(path)))
		}
		if isAutoMode(subnet.IpCidrRange) {
			autoMode = append(autoMode, path)
		}
	}
	n.subnets = autoMode
	return n, nil
}

// subnetOf returns the path of the requested subnet, or else the cluster's. A legacy network has none.
func (a *api) subnetOf(ctx context.Context, name string, at location) (subnet string, legacy bool, err error) {
	asked := ""
	if name != "" {
		asked = "projects/" + at.networkProject + "/regions/" + at.region + "/subnetworks/" + name
	}
	if at.subnet != "" { // so the network has subnets
		return cmp.Or(asked, at.subnet), false, nil
	}
	n, err := a.stores.networks.Get(ctx, lastPart(at.network), inventory.Query{MaxAge: networkMaxAge})
	switch {
	case err != nil:
		return "", false, err
	case n.legacy:
		return "", true, nil
	case asked != "":
		return asked, false, nil
	case len(n.subnets) != 1:
		return "", false, fmt.Errorf("network %s has %d subnets in region %s of which one could be the cluster's; name it by subnetwork-name in "+
			"the cloud config", n.name, len(n.subnets), at.region)
	}
	return n.subnets[0], false, nil
}
