package azure

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file finds public addresses of Services in resource groups that no annotation names any more: the program may have ended before the
// former address was deleted.

// listSubscription lists the public addresses of the subscription, as far as the credential may see them.
func (r *resources) listSubscription(ctx context.Context) ([]doc, int, error) {
	path := "/subscriptions/" + r.api.config.NetworkSubscription + "/providers/Microsoft.Network/publicIPAddresses"
	return list[doc](ctx, r.api, "public addresses of the subscription", path, networkVersion)
}

// listUsual lists the public addresses of the usual resource group. The first listing covers the subscription, because it costs no further
// call and shows addresses in other groups. A credential without that permission sees its resource groups only.
func (r *resources) listUsual(ctx context.Context) ([]doc, int, error) {
	r.mu.Lock()
	read := r.unlisted != nil
	r.mu.Unlock()
	if !read {
		all, pages, err := r.listSubscription(ctx)
		if err == nil {
			return r.splitUsual(all), pages, nil
		}
		if !isSkippedGroup(err) {
			return nil, pages, err
		}
	}
	all, pages, err := list[doc](ctx, r.api, "public addresses", r.addressPath(r.api.config.Group), networkVersion)
	if err == nil {
		r.splitUsual(nil)
	}
	return all, pages, err
}

// splitUsual keeps the addresses of the usual resource group, and notes those of others that are for Services.
func (r *resources) splitUsual(all []doc) (usual []doc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unlisted == nil {
		r.unlisted = map[string]*publicIP{}
	}
	for _, d := range all {
		if a := parse[publicIP](d); groupOf(a.lowerID()) == r.api.config.Group {
			usual = append(usual, d)
		} else if _, given := a.services(); given {
			r.unlisted[a.lowerID()] = a
		}
	}
	return usual
}

// recordUnlisted records an address for Services outside of the usual resource group.
func (r *resources) recordUnlisted(a *publicIP) { r.splitUsual([]doc{format(a)}) }

// unlistedIDs returns the matching addresses in other resource groups, by lower-case ID.
func (r *resources) unlistedIDs(is func(*publicIP) bool) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range sortedKeys(r.unlisted) {
		if is(r.unlisted[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (r *resources) forgetUnlisted(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unlisted, id)
}

// unlistedAddresses returns a Service's public addresses outside of the resource groups already read.
func (r *observer) unlistedAddresses(
	ctx context.Context, q services.Request, o *observed, looked []string,
) (list []*publicIP, err error) {
	proven := func(a *publicIP) bool {
		return r.config.isTaggedFor(a, q.Service, q.Cluster) && (a.hasMark(o.mark) || isNamedFor(a, q.Cluster, q.Service))
	}
	for _, id := range r.resources.unlistedIDs(proven) {
		if slices.Contains(looked, groupOf(id)) {
			continue
		}
		a, err := readAs[publicIP](ctx, r.resources, id, false)
		if err != nil {
			return nil, err
		}
		switch {
		case a == nil:
			r.resources.forgetUnlisted(id)
		case proven(a):
			list = append(list, a)
		}
	}
	return list, nil
}

// isNamedFor reports whether an address without a mark has the name that a controller gives to that of a Service, which holds the Service's
// UID: another cluster may be called the same, and have a Service of the same name.
func isNamedFor(a *publicIP, cluster string, s *v1.Service) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(a.Name), strings.ToLower(cluster)+"-")
	return len(a.marks()) == 0 && ok && ownedBy(baseName(s), rest)
}
