package gce

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// place is where the cluster is.
type place struct {
	project, networkProject string
	zone, region            string
	// network and subnet are the paths of the resources, from "projects/" on; subnet may be empty.
	network, subnet string
}

// shared reports whether the network is another project's.
func (p place) shared() bool { return p.networkProject != p.project }

// places finds out where the cluster is. What the cloud config leaves out, the metadata server says; it is asked when it is needed
// first, and not by a replica that never leads.
type places struct {
	config Config
	api    *api
	turn   chan struct{}
	known  *place
}

func newPlaces(c Config, a *api) *places {
	return &places{config: c, api: a, turn: make(chan struct{}, 1)}
}

// get returns where the cluster is.
func (p *places) get(ctx context.Context) (place, error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return place{}, fmt.Errorf("waiting for the place of the cluster: %w", ctx.Err())
	}
	defer func() { <-p.turn }()
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

var numeric = regexp.MustCompile(`^[0-9]+$`)

func (p *places) find(ctx context.Context) (found place, err error) {
	c, m := p.config, p.api.metadata
	found = place{project: c.Project, networkProject: c.NetworkProject, zone: c.LocalZone}
	if found.project == "" {
		if found.project, err = m.text(ctx, "project/project-id"); err != nil {
			return found, err
		}
	}
	if found.zone == "" {
		if found.zone, err = m.last(ctx, "instance/zone"); err != nil {
			return found, err
		}
	}
	found.region = regionOf(found.zone)
	if found.networkProject == "" {
		found.networkProject = found.project
	}
	for _, project := range []*string{&found.project, &found.networkProject} {
		if *project, err = p.projectName(ctx, *project); err != nil {
			return found, err
		}
	}
	network := c.Network
	if network == "" {
		if network, err = m.last(ctx, "instance/network-interfaces/0/network"); err != nil {
			return found, err
		}
	}
	found.network = resourceOr(network, "projects/"+found.networkProject+"/global/networks/")
	if c.Subnet != "" {
		found.subnet = resourceOr(c.Subnet, "projects/"+found.networkProject+"/regions/"+found.region+"/subnetworks/")
	}
	return found, nil
}

// projectName returns the name of a project that is given by its number.
func (p *places) projectName(ctx context.Context, project string) (string, error) {
	if !numeric.MatchString(project) {
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

// regionOf is the region of a zone.
func regionOf(zone string) string { return zone[:max(strings.LastIndex(zone, "-"), 0)] }

// resource is the path of a link from "projects/" on, however it is written, for comparison; links are never compared as texts.
func resource(link string) string {
	if i := strings.Index(link, "projects/"); i >= 0 {
		return link[i:]
	}
	return strings.Trim(link, "/")
}

// resourceOr is resource, and adds the beginning where only a name or a partial link is given.
func resourceOr(text, prefix string) string {
	r := resource(text)
	if strings.HasPrefix(r, "projects/") {
		return r
	}
	return prefix + lastPart(r)
}

func lastPart(link string) string { return link[strings.LastIndex(link, "/")+1:] }
