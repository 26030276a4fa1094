package openstack

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

type networkBody struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Subnets  []string `json:"subnets"`
	External bool     `json:"router:external"`
}

type subnet struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	NetworkID string   `json:"network_id"`
	CIDR      string   `json:"cidr"`
	IPVersion int      `json:"ip_version"`
	Tags      []string `json:"tags"`
}

// networks holds the networks and subnets visible to the project. They rarely change, so they are read rarely.
type networks struct {
	networks *inventory.Inventory[string, networkBody]
	subnets  *inventory.Inventory[string, subnet]
}

func newNetworks(a *api) *networks {
	ofNetworks := sourceOf(a, network, "network", "networks", func(n networkBody) string { return n.ID })
	ofSubnets := sourceOf(a, network, "subnet", "subnets", func(s subnet) string { return s.ID })
	ofNetworks.Patience, ofSubnets.Patience = readPatience, readPatience
	return &networks{networks: inventory.New(ofNetworks), subnets: inventory.New(ofSubnets)}
}

func (n *networks) network(ctx context.Context, id string) (networkBody, error) {
	return n.networks.Get(ctx, id, inventory.Query{MaxAge: networksMaxAge, MaxMissAge: missMaxAge})
}

func (n *networks) subnet(ctx context.Context, id string) (subnet, error) {
	return n.subnets.Get(ctx, id, inventory.Query{MaxAge: networksMaxAge, MaxMissAge: missMaxAge})
}

// externalNetwork returns the first network by ID that can have IPv4 floating addresses, or "".
func (n *networks) externalNetwork(ctx context.Context) (string, error) {
	q := inventory.Query{MaxAge: networksMaxAge}
	all, err := n.networks.All(ctx, q)
	if err != nil {
		return "", err
	}
	subnets, err := n.subnets.All(ctx, q)
	if err != nil {
		return "", err
	}
	visible := map[string]int{}
	for _, s := range subnets {
		visible[s.ID] = s.IPVersion
	}
	slices.SortFunc(all, func(a, b networkBody) int { return strings.Compare(a.ID, b.ID) })
	for _, one := range all {
		// A subnet that the project cannot see may be IPv4.
		usable := slices.ContainsFunc(one.Subnets, func(id string) bool { return visible[id] == 0 || visible[id] == 4 })
		if one.External && usable {
			return one.ID, nil
		}
	}
	return "", nil
}

// subnetChoice selects subnets of floating addresses, by ID or by name and tags.
type subnetChoice struct{ id, name, tags string }

// findSubnets returns the chosen subnets of a network, sorted by ID.
func (n *networks) findSubnets(ctx context.Context, networkID string, w subnetChoice) ([]subnet, error) {
	if w.id != "" {
		s, err := n.subnet(ctx, w.id)
		if err == nil && s.NetworkID != networkID {
			err = &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: "choosing the subnet of the floating address", Message: fmt.Sprintf("subnet %s is not of network %s", w.id, networkID)}
		}
		return []subnet{s}, cloudapi.NotAbsence(err)
	}
	all, err := n.subnets.All(ctx, inventory.Query{MaxAge: networksMaxAge})
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(all, func(s subnet) bool {
		return s.NetworkID != networkID || s.IPVersion != 4 || !matchesName(w.name, s.Name) || !matchesTags(w.tags, s.Tags)
	})
	slices.SortFunc(chosen, func(a, b subnet) int { return strings.Compare(a.ID, b.ID) })
	if len(chosen) == 0 {
		return nil, &cloudapi.Error{
			Class: cloudapi.ErrInvalid, Operation: "choosing the subnet of the floating address",
			Message: fmt.Sprintf("no subnet of network %s matches name %q and tags %q", networkID, w.name, w.tags),
		}
	}
	return chosen, nil
}

// matchesName compares a name with a glob, or after ~ a regular expression; a leading ! negates it.
func matchesName(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	rest, negated := strings.CutPrefix(pattern, "!")
	var match bool
	if expression, ok := strings.CutPrefix(rest, "~"); ok {
		compiled, err := regexp.Compile("^(?:" + expression + ")$")
		match = err == nil && compiled.MatchString(name)
	} else {
		match, _ = path.Match(rest, name)
	}
	return match != negated
}

// matchesTags compares tags as documented by OpenStack's own controller: a,b means any, &a,b all; a leading ! negates it.
func matchesTags(choice string, have []string) bool {
	if choice == "" {
		return true
	}
	rest, negated := strings.CutPrefix(choice, "!")
	rest, all := strings.CutPrefix(rest, "&")
	wanted := strings.Split(rest, ",")
	found := 0
	for _, t := range wanted {
		if slices.Contains(have, strings.TrimSpace(t)) {
			found++
		}
	}
	match := found > 0
	if all {
		match = found == len(wanted)
	}
	return match != negated
}

// placeSecondVIP adds a VIP of the other family if Octavia supports that, and the network has a subnet for it.
func (n *networks) placeSecondVIP(
	ctx context.Context, service *v1.Service, f features, request *loadBalancerRequest,
) ([]services.Finding, error) {
	alone := []services.Finding{singleStackFinding(service.Spec.IPFamilies[0])}
	if !f.hasMoreVIPs() {
		return alone, nil
	}
	networkID, family := request.VIPNetworkID, 4
	if request.VIPSubnetID != "" {
		first, err := n.subnet(ctx, request.VIPSubnetID)
		if err != nil {
			return nil, cloudapi.NotAbsence(err)
		}
		networkID, family = first.NetworkID, first.IPVersion
	}
	second, err := n.subnetOfFamily(ctx, networkID, 10-family)
	switch {
	case err != nil:
		return nil, err
	case second == "":
		return alone, nil
	}
	request.AdditionalVIPs = []additionalVIP{{SubnetID: second}}
	return nil, nil
}

// subnetOfFamily returns the network's first subnet of IPv4 or IPv6, or "". Octavia itself would choose IPv4.
func (n *networks) subnetOfFamily(ctx context.Context, networkID string, version int) (string, error) {
	all, err := n.subnets.All(ctx, inventory.Query{MaxAge: networksMaxAge})
	if err != nil {
		return "", err
	}
	slices.SortFunc(all, func(a, b subnet) int { return strings.Compare(a.ID, b.ID) })
	for _, one := range all {
		if one.NetworkID == networkID && one.IPVersion == version {
			return one.ID, nil
		}
	}
	return "", nil
}
