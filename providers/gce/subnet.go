package gce

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// networkMaxAge is long, because a cluster's network rarely changes.
const networkMaxAge = 10 * time.Minute

// isAutoMode reports whether a subnet is in the range of auto mode networks. Users may have created others.
func isAutoMode(cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && netip.MustParsePrefix("10.128.0.0/9").Contains(p.Addr())
}

// networkView holds the properties of the network that matter to internal load balancers.
type networkView struct {
	legacy bool
	// name is the network's; subnets are the paths of those in the region.
	name    string
	subnets []string
	auto    bool
}

// networks caches the network for all Services. Failed reads are not cached.
type networks struct {
	mu   sync.Mutex
	read time.Time
	view networkView
}

func (n *networks) get(ctx context.Context, a *api, at place) (networkView, error) {
	n.mu.Lock()
	view, known := n.view, !n.read.IsZero() && time.Since(n.read) < networkMaxAge
	n.mu.Unlock()
	if known {
		return view, nil
	}
	began := time.Now()
	view, err := a.network(ctx, at)
	if err != nil {
		return view, cloudapi.NotAbsence(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.view, n.read = view, began
	return view, nil
}

func (a *api) network(ctx context.Context, at place) (v networkView, err error) {
	what := "reading network " + lastPart(at.network)
	found, err := a.sdk.Networks.Get(at.networkProject, lastPart(at.network)).Context(ctx).
		Fields("name", "subnetworks", "IPv4Range", "autoCreateSubnetworks").Do()
	if err == nil && found.Name != lastPart(at.network) {
		err = errWrongAnswer
	}
	if err != nil {
		return v, apiError(err, what)
	}
	v = networkView{legacy: found.IPv4Range != "", name: found.Name, auto: found.AutoCreateSubnetworks}
	for _, link := range found.Subnetworks {
		if strings.Contains(link, "/regions/"+at.region+"/") {
			v.subnets = append(v.subnets, resource(link))
		}
	}
	if !v.auto || len(v.subnets) < 2 {
		return v, nil
	}
	var made []string
	for _, path := range v.subnets {
		subnet, err := a.sdk.Subnetworks.Get(at.networkProject, at.region, lastPart(path)).Context(ctx).Fields("name", "ipCidrRange").Do()
		if err == nil && subnet.Name != lastPart(path) {
			err = errWrongAnswer
		}
		if err != nil {
			return v, apiError(err, "reading subnet "+lastPart(path))
		}
		if isAutoMode(subnet.IpCidrRange) {
			made = append(made, path)
		}
	}
	v.subnets = made
	return v, nil
}

// subnetOf returns the path of the requested subnet, or else the cluster's. A legacy network has none.
func (b *reconciler) subnetOf(ctx context.Context, name string, at place) (subnet string, legacy bool, err error) {
	asked := ""
	if name != "" {
		asked = "projects/" + at.networkProject + "/regions/" + at.region + "/subnetworks/" + name
	}
	if at.subnet != "" { // so the network has subnets
		return cmp.Or(asked, at.subnet), false, nil
	}
	network, err := b.networks.get(ctx, b.api, at)
	switch {
	case err != nil:
		return "", false, err
	case network.legacy:
		return "", true, nil
	case asked != "":
		return asked, false, nil
	case len(network.subnets) != 1:
		return "", false, fmt.Errorf("network %s has %d subnets in region %s of which one could be the cluster's; name it by subnetwork-name in "+
			"the cloud config", network.name, len(network.subnets), at.region)
	}
	return network.subnets[0], false, nil
}
