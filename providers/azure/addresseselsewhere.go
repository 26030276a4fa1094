package azure

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file finds public addresses of Services outside of the usual resource group. Once a Service names another group, no listing for it
// shows its former address, and the program may have ended before it deleted that.

// listSubscription lists the public addresses of the subscription, as far as the credential may see them.
func (r *resources) listSubscription(ctx context.Context) ([]doc, int, error) {
	path := "/subscriptions/" + r.api.config.NetworkSubscription + "/providers/Microsoft.Network/publicIPAddresses"
	return list[doc](ctx, r.api, "public addresses of the subscription", path, networkVersion)
}

// listUsual lists the public addresses of the usual resource group. The first listing covers the subscription, because it costs no further
// call and shows addresses in other groups. A credential without that permission sees its resource groups only.
func (r *resources) listUsual(ctx context.Context) ([]doc, int, error) {
	r.mu.Lock()
	read := r.elsewhere != nil
	r.mu.Unlock()
	if !read {
		all, pages, err := r.listSubscription(ctx)
		if err == nil {
			r.recordElsewhere(parseAll[publicIP](all)...)
			return slices.DeleteFunc(all, func(d doc) bool { return groupOf(docID(d)) != r.api.config.Group }), pages, nil
		}
		if !isSkippedGroup(err) {
			return nil, pages, err
		}
	}
	all, pages, err := list[doc](ctx, r.api, "public addresses", r.addressPath(r.api.config.Group), networkVersion)
	if err == nil {
		r.recordElsewhere() // the subscription is not asked for again
	}
	return all, pages, err
}

// recordElsewhere records those of some addresses that are for Services, and outside of the usual resource group.
func (r *resources) recordElsewhere(list ...*publicIP) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.elsewhere == nil {
		r.elsewhere = map[string]*publicIP{}
	}
	for _, a := range list {
		if _, given := a.services(); given && groupOf(a.lowerID()) != r.api.config.Group {
			r.elsewhere[a.lowerID()] = a
		}
	}
}

// idsElsewhere returns the IDs, in lower case, of the recorded addresses that match.
func (r *resources) idsElsewhere(matches func(*publicIP) bool) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range sortedKeys(r.elsewhere) {
		if matches(r.elsewhere[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (r *resources) forgetElsewhere(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.elsewhere, id)
}

// addressesElsewhere returns a Service's public addresses outside of the resource groups whose listings were read.
func (r *observer) addressesElsewhere(
	ctx context.Context, q services.Request, o *observed, listed []string,
) (list []*publicIP, err error) {
	proven := func(a *publicIP) bool {
		return r.config.isTaggedFor(a, q.Service, q.Cluster) && (a.hasMark(o.mark) || isNamedFor(a, q.Cluster, q.Service))
	}
	for _, id := range r.resources.idsElsewhere(proven) {
		if slices.Contains(listed, groupOf(id)) {
			continue
		}
		a, err := readAs[publicIP](ctx, r.resources, id, false)
		if err != nil {
			return nil, err
		}
		switch {
		case a == nil:
			r.resources.forgetElsewhere(id)
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
