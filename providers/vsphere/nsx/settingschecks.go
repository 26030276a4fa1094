package nsx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// CheckSettings looks for everything in NSX that the configuration names.
func (p *Parts) CheckSettings(ctx context.Context) error {
	s := settingsCheck{client: p.client, looked: map[string]bool{}}
	if p.loadBalancers != nil {
		s.loadBalancers(ctx, p.loadBalancers)
	}
	if p.routes != nil {
		s.exists(ctx, "route.routerPath", strings.TrimSuffix(p.routes.collection, "/static-routes"))
	}
	return errors.Join(s.problems...)
}

// settingsCheck collects faults, each once: classes inherit from each other.
type settingsCheck struct {
	client   *client
	looked   map[string]bool
	problems []error
}

func (s *settingsCheck) note(err error) {
	if err != nil && !s.looked[err.Error()] {
		s.looked[err.Error()] = true
		s.problems = append(s.problems, err)
	}
}

// exists reports an object that is named by its path and is not there.
func (s *settingsCheck) exists(ctx context.Context, key, path string) {
	if path == "" || s.looked[path] {
		return
	}
	s.looked[path] = true
	err := s.client.call(ctx, "reading "+path, http.MethodGet, path, nil, &struct{}{})
	if errors.Is(err, cloudapi.ErrNotFound) {
		err = schema.BlameKey(key, "", fmt.Sprintf("there is no %s in NSX; correct it", path))
	}
	s.note(err)
}

func (s *settingsCheck) loadBalancers(ctx context.Context, l *reconciler) {
	s.exists(ctx, "loadBalancer.tier1GatewayPath", l.config.Tier1GatewayPath)
	if id := l.config.LBServiceID; id != "" {
		s.exists(ctx, "loadBalancer.lbServiceId", pathServices+"/"+id)
	}
	for _, name := range slices.Sorted(maps.Keys(l.views.classes)) {
		class, at := l.views.classes[name], SectionClass+"."+name
		if class.IPPoolID != "" {
			s.exists(ctx, at+".ipPoolId", pathIPPools+"/"+class.IPPoolID)
		} else {
			_, err := l.views.findPoolID(ctx, class)
			s.note(err)
		}
		s.profile(ctx, l, at+".tcpAppProfilePath", class.TCPAppProfilePath, class.TCPAppProfileName, typeTCPProfile)
		s.profile(ctx, l, at+".udpAppProfilePath", class.UDPAppProfilePath, class.UDPAppProfileName, typeUDPProfile)
	}
}

func (s *settingsCheck) profile(ctx context.Context, l *reconciler, key, path, name, kind string) {
	if path != "" {
		s.exists(ctx, key, path)
		return
	}
	_, err := l.views.findProfile(ctx, "", name, kind)
	s.note(err)
}
