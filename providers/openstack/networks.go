package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/utils"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
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
	return &networks{
		networks: inventory.New(inventory.Source[string, networkBody]{
			Kind: "network", Patience: readPatience, ID: func(n networkBody) string { return n.ID },
			List: func(ctx context.Context) ([]networkBody, int, error) {
				return listAll[networkBody](ctx, a, network, "networks", "networks", pageQuery())
			},
			Get: func(ctx context.Context, id string) (networkBody, error) {
				n, err := get(ctx, a, network, "reading network "+id, "networks/"+id, "network", func(n *networkBody) bool { return n.ID == id })
				return valueOf(n), err
			},
		}),
		subnets: inventory.New(inventory.Source[string, subnet]{
			Kind: "subnet", Patience: readPatience, ID: func(s subnet) string { return s.ID },
			List: func(ctx context.Context) ([]subnet, int, error) {
				return listAll[subnet](ctx, a, network, "subnets", "subnets", pageQuery())
			},
			Get: func(ctx context.Context, id string) (subnet, error) {
				s, err := get(ctx, a, network, "reading subnet "+id, "subnets/"+id, "subnet", func(s *subnet) bool { return s.ID == id })
				return valueOf(s), err
			},
		}),
	}
}

func valueOf[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
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

// features tells which features a version of Octavia's API has.
type features struct{ minor int }

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

func (f features) hasTimeouts(provider string) bool {
	return f.minor >= minorTimeouts && provider != providerOVN
}
func (f features) hasTags() bool { return f.minor >= minorTags }
func (f features) hasFlavors(provider string) bool {
	return f.minor >= minorFlavors && provider != providerOVN
}

func (f features) hasACL(provider string) bool { return f.minor >= minorACL && provider != providerOVN }

func (f features) hasZones(provider string) bool {
	return f.minor >= minorZones && provider != providerOVN
}

func (f features) hasMoreVIPs(provider string) bool {
	return f.minor >= minorMoreVIPs && provider != providerOVN
}

func (f features) hasHTTPMonitor(provider, protocol string) bool {
	return provider != providerOVN && (protocol != protocolUDP || f.minor >= minorUDPMonitor)
}

var octaviaVersion = regexp.MustCompile(`^v2\.([0-9]+)$`)

// octavia reads the features of Octavia once. A failed read is an error, because otherwise load balancers would be created without these
// features.
func (a *api) octavia(ctx context.Context) (features, error) {
	unlock, err := a.once.Lock(ctx, "features")
	if err != nil {
		return features{}, fmt.Errorf("waiting for the versions of Octavia: %w", err)
	}
	defer unlock()
	a.mu.Lock()
	known := a.features
	a.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	client, err := a.service(ctx, loadBalancing)
	if err != nil {
		return features{}, err
	}
	// Versions are listed at the root, even if the catalog's address contains one.
	root, err := utils.BaseEndpoint(client.Endpoint)
	if err != nil {
		return features{}, fmt.Errorf("reading the endpoint of Octavia: %w", err)
	}
	root = strings.TrimRight(root, "/") + "/"
	list, err := a.octaviaVersions(ctx, client, root)
	if err != nil {
		return features{}, cloudapi.NotAbsence(err)
	}
	f := features{}
	for _, v := range list {
		if m := octaviaVersion.FindStringSubmatch(v.ID); m != nil {
			minor, _ := strconv.Atoi(m[1]) // the expression matches only digits
			f.minor = max(f.minor, minor)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.features = &f
	return f, nil
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

// errNoExtensions: an empty list of extensions cannot come from Neutron.
var errNoExtensions = errors.New("Neutron lists no extension at all") //nolint:staticcheck // a name

// hasExtension reports whether Neutron has an extension. The list is read once.
func (a *api) hasExtension(ctx context.Context, alias string) (bool, error) {
	unlock, err := a.once.Lock(ctx, "extensions")
	if err != nil {
		return false, fmt.Errorf("waiting for the extensions of Neutron: %w", err)
	}
	defer unlock()
	a.mu.Lock()
	known := a.extensions
	a.mu.Unlock()
	if known == nil {
		type extension struct{ Alias string }
		list, _, err := listAll[extension](ctx, a, network, "extensions", "extensions", nil)
		if err == nil && len(list) == 0 {
			err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "listing extensions", Message: errNoExtensions.Error()}
		}
		if err != nil {
			return false, cloudapi.NotAbsence(err)
		}
		known = map[string]bool{}
		for _, e := range list {
			known[e.Alias] = true
		}
		a.mu.Lock()
		a.extensions = known
		a.mu.Unlock()
	}
	return known[alias], nil
}
