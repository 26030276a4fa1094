package openstack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/utils"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

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
	unlock, err := a.firstReads.Lock(ctx, "versions of Octavia")
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
	unlock, err := a.firstReads.Lock(ctx, "extensions")
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
