package gce

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

// place is the cluster's location.
type place struct {
	project, networkProject string
	zone, region            string
	// network and subnet are resource paths, starting with "projects/"; subnet may be empty.
	network, subnet string
}

// isSharedVPC reports whether the network belongs to another project.
func (p place) isSharedVPC() bool { return p.networkProject != p.project }

func (p place) regional(collection, name string) string {
	return "projects/" + p.project + "/regions/" + p.region + "/" + collection + "/" + name
}

func (p place) backend(name string) string { return p.regional("backendServices", name) }

func (p place) group(id groupID) string {
	return "projects/" + p.project + "/zones/" + id.zone + "/instanceGroups/" + id.name
}

func (p place) httpCheck(name string) string {
	return "projects/" + p.project + "/global/httpHealthChecks/" + name
}

func (p place) healthCheck(name string) string {
	return "projects/" + p.project + "/global/healthChecks/" + name
}

func (p place) firewall(name string) string {
	return "projects/" + p.networkProject + "/global/firewalls/" + name
}

// objectsOf returns the paths of all objects of a load balancer.
func (p place) objectsOf(name, backend string) []string {
	paths := []string{
		p.regional("forwardingRules", name), p.regional("addresses", name), p.regional("targetPools", name),
		p.regional("targetPools", nextPoolName(name)), p.httpCheck(name), p.backend(name), p.backend(backend), p.healthCheck(name),
	}
	for _, firewall := range ownFirewallNames(name) {
		paths = append(paths, p.firewall(firewall))
	}
	return paths
}

// places determines the cluster's location from the cloud config and the metadata server. That is asked at the first use only, so never by
// a replica that does not lead.
type places struct {
	config Config
	api    *api
	once   keylock.Locks
	known  *place
}

func (p *places) get(ctx context.Context) (place, error) {
	unlock, err := p.once.Lock(ctx, "")
	if err != nil {
		return place{}, fmt.Errorf("waiting for the place of the cluster: %w", err)
	}
	defer unlock()
	if p.known != nil {
		return *p.known, nil
	}
	found, err := p.find(ctx)
	if err != nil {
		return place{}, cloudapi.NotAbsence(err)
	}
	p.known = &found
	return found, nil
}

var projectNumber = regexp.MustCompile(`^[0-9]+$`)

func (p *places) find(ctx context.Context) (found place, err error) {
	c, m := p.config, p.api.metadata
	found = place{project: c.Project, networkProject: c.NetworkProject, zone: c.LocalZone}
	if found.project == "" {
		if found.project, err = m.text(ctx, "project/project-id"); err != nil {
			return found, err
		}
	}
	if found.zone == "" {
		if found.zone, err = m.lastPathPart(ctx, "instance/zone"); err != nil {
			return found, err
		}
	}
	found.region = regionOf(found.zone)
	found.networkProject = cmp.Or(found.networkProject, found.project)
	for _, project := range []*string{&found.project, &found.networkProject} {
		if *project, err = p.projectName(ctx, *project); err != nil {
			return found, err
		}
	}
	network := c.Network
	if network == "" {
		if network, err = m.lastPathPart(ctx, "instance/network-interfaces/0/network"); err != nil {
			return found, err
		}
	}
	found.network = resourceOr(network, "projects/"+found.networkProject+"/global/networks/")
	if c.Subnet != "" {
		found.subnet = resourceOr(c.Subnet, "projects/"+found.networkProject+"/regions/"+found.region+"/subnetworks/")
	}
	return found, nil
}

// projectName returns the name of a project given by number.
func (p *places) projectName(ctx context.Context, project string) (string, error) {
	if !projectNumber.MatchString(project) {
		return project, nil
	}
	found, err := p.api.sdk.Projects.Get(project).Context(ctx).Fields("name").Do()
	if err == nil && found.Name == "" {
		err = errWrongAnswer
	}
	if err != nil {
		return "", apiError(err, "reading project "+project)
	}
	return found.Name, nil
}

func regionOf(zone string) string { return zone[:max(strings.LastIndex(zone, "-"), 0)] }

// resource returns the path of a link, starting with "projects/". Links have several spellings, so they are compared by this path.
func resource(link string) string {
	if i := strings.Index(link, "projects/"); i >= 0 {
		return link[i:]
	}
	return strings.Trim(link, "/")
}

// resourceOr is resource, and adds the prefix to a name or a partial link.
func resourceOr(text, prefix string) string {
	r := resource(text)
	if strings.HasPrefix(r, "projects/") {
		return r
	}
	return prefix + lastPart(r)
}

func lastPart(link string) string { return link[strings.LastIndex(link, "/")+1:] }
