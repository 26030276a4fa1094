package openstack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/utils"
	"k8s.io/api/core/v1"

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
	alone := []services.Finding{singleStack(service.Spec.IPFamilies[0])}
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

// features tells what Octavia supports, by the minor version of its API and the load balancer's provider.
type features struct {
	minor    int
	provider string
}

// Minor versions of Octavia's API 2.x that introduced a feature, from its release notes.
const (
	minorTimeouts   = 1
	minorTags       = 5
	minorFlavors    = 6
	minorACL        = 12
	minorZones      = 14
	minorUDPMonitor = 16
	minorMoreVIPs   = 26
)

func (f features) isOVN() bool { return f.provider == providerOVN }

func (f features) hasTimeouts() bool { return f.minor >= minorTimeouts && !f.isOVN() }

func (f features) hasTags() bool { return f.minor >= minorTags }

func (f features) hasFlavors() bool { return f.minor >= minorFlavors && !f.isOVN() }

func (f features) hasACL() bool { return f.minor >= minorACL && !f.isOVN() }

func (f features) hasZones() bool { return f.minor >= minorZones && !f.isOVN() }

func (f features) hasMoreVIPs() bool { return f.minor >= minorMoreVIPs && !f.isOVN() }

func (f features) hasHTTPMonitor(protocol string) bool {
	return !f.isOVN() && (protocol != protocolUDP || f.minor >= minorUDPMonitor)
}

var octaviaVersion = regexp.MustCompile(`^v2\.([0-9]+)$`)

// octaviaMinor reads the minor version of Octavia's API once. A failed read is an error, because otherwise load balancers would be created
// without the features of the version.
func (a *api) octaviaMinor(ctx context.Context) (int, error) {
	unlock, err := a.once.Lock(ctx, "versions of Octavia")
	if err != nil {
		return 0, fmt.Errorf("waiting for the versions of Octavia: %w", err)
	}
	defer unlock()
	if a.minor != nil {
		return *a.minor, nil
	}
	client, err := a.service(ctx, loadBalancing)
	if err != nil {
		return 0, err
	}
	// Versions are listed at the root, even if the catalog's address contains one.
	root, err := utils.BaseEndpoint(client.Endpoint)
	if err != nil {
		return 0, fmt.Errorf("reading the endpoint of Octavia: %w", err)
	}
	list, err := a.octaviaVersions(ctx, client, strings.TrimRight(root, "/")+"/")
	if err != nil {
		return 0, cloudapi.NotAbsence(err)
	}
	highest := 0
	for _, v := range list {
		if m := octaviaVersion.FindStringSubmatch(v.ID); m != nil {
			minor, _ := strconv.Atoi(m[1]) // the expression matches only digits
			highest = max(highest, minor)
		}
	}
	a.minor = &highest
	return highest, nil
}

type apiVersion struct {
	ID string `json:"id"`
}

// octaviaVersions returns the versions of Octavia's API. The search for the endpoint has usually read them already.
func (a *api) octaviaVersions(ctx context.Context, client *gophercloud.ServiceClient, root string) ([]apiVersion, error) {
	var answer struct {
		Versions []apiVersion `json:"versions"`
	}
	if json.Unmarshal(a.versions.takeList(root), &answer) == nil && len(answer.Versions) > 0 {
		return answer.Versions, nil
	}
	return call(ctx, "reading the versions of Octavia", func(ctx context.Context) ([]apiVersion, error) {
		err := fetch(ctx, client, http.MethodGet, root, &gophercloud.RequestOpts{
			OkCodes: []int{http.StatusOK, http.StatusMultipleChoices}, JSONResponse: &answer,
		})
		if err == nil && len(answer.Versions) == 0 {
			err = errWrongAnswer
		}
		return answer.Versions, err
	})
}

// hasExtension reports whether Neutron has an extension. The list is read once.
func (a *api) hasExtension(ctx context.Context, alias string) (bool, error) {
	unlock, err := a.once.Lock(ctx, "extensions")
	if err != nil {
		return false, fmt.Errorf("waiting for the extensions of Neutron: %w", err)
	}
	defer unlock()
	if a.extensions == nil {
		type extension struct{ Alias string }
		list, _, err := listAll[extension](ctx, a, network, "extensions", "extensions", nil)
		if err == nil && len(list) == 0 { // Neutron always has some
			err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "listing extensions", Message: "Neutron lists no extension at all"}
		}
		if err != nil {
			return false, cloudapi.NotAbsence(err)
		}
		a.extensions = map[string]bool{}
		for _, e := range list {
			a.extensions[e.Alias] = true
		}
	}
	return a.extensions[alias], nil
}
