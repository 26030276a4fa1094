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

// location is the cluster's location.
type location struct {
	project, networkProject string
	zone, region            string
	// network and subnet are resource paths, starting with "projects/"; subnet may be empty.
	network, subnet string
}

// isSharedVPC reports whether the network belongs to another project.
func (p location) isSharedVPC() bool { return p.networkProject != p.project }

func (p location) regional(collection, name string) string {
	return "projects/" + p.project + "/regions/" + p.region + "/" + collection + "/" + name
}

func (p location) backend(name string) string { return p.regional("backendServices", name) }

func (p location) group(id groupID) string {
	return "projects/" + p.project + "/zones/" + id.zone + "/instanceGroups/" + id.name
}

func (p location) httpCheck(name string) string {
	return "projects/" + p.project + "/global/httpHealthChecks/" + name
}

func (p location) healthCheck(name string) string {
	return "projects/" + p.project + "/global/healthChecks/" + name
}

func (p location) firewall(name string) string {
	return "projects/" + p.networkProject + "/global/firewalls/" + name
}

// objectPaths returns the paths of all objects of a load balancer.
func (p location) objectPaths(name, backend string) []string {
	paths := []string{
		p.regional("forwardingRules", name), p.regional("addresses", name), p.regional("targetPools", name),
		p.regional("targetPools", nextPoolName(name)), p.httpCheck(name), p.backend(name), p.backend(backend), p.healthCheck(name),
	}
	for _, firewall := range ownFirewallNames(name) {
		paths = append(paths, p.firewall(firewall))
	}
	return paths
}

// locator determines the cluster's location from the cloud config and the metadata server. That is asked at the first use only, so never by
// a replica that does not lead.
type locator struct {
	config Config
	api    *api
	reads  keylock.Locks
	known  *location
}

func (p *locator) get(ctx context.Context) (location, error) {
	unlock, err := p.reads.Lock(ctx, "")
	if err != nil {
		return location{}, fmt.Errorf("waiting for the place of the cluster: %w", err)
	}
	defer unlock()
	if p.known != nil {
		return *p.known, nil
	}
	found, err := p.find(ctx)
	if err != nil {
		return location{}, cloudapi.NotAbsence(err)
	}
	p.known = &found
	return found, nil
}

var projectNumber = regexp.MustCompile(`^[0-9]+$`)

func (p *locator) find(ctx context.Context) (found location, err error) {
	c, m := p.config, p.api.metadata
	found = location{project: c.Project, networkProject: c.NetworkProject, zone: c.LocalZone}
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
func (p *locator) projectName(ctx context.Context, project string) (string, error) {
	if !projectNumber.MatchString(project) {
		return project, nil
	}
	found, err := p.api.sdk.Projects.Get(project).Context(ctx).Fields("name").Do()
	if err == nil && found.Name == "" {
		err = cloudapi.ErrWrongAnswer
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
