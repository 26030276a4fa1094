package app

import (
	"context"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// right is a permission that an account needs.
type right struct{ verb, group, resource, subresource, namespace, name string }

func (r right) String() string {
	return strings.TrimSuffix(r.verb+" "+r.resource+"/"+r.subresource, "/")
}

// frameworkRights are the permissions of the framework's controllers, by client name: a Node is read before it is patched. They read
// everything else by the program's informers.
var frameworkRights = map[string]map[string]string{
	"node-controller":    {"/nodes": "get update patch delete", "/nodes/status": "patch", "/events": "create patch update"},
	"service-controller": {"/services": "patch", "/services/status": "patch", "/events": "create patch update"},
	"route-controller":   {"/nodes/status": "patch", "/events": "create patch update"},
}

// listRights expands verbs by group, resource and subresource to single permissions.
func listRights(all map[string]string) (list []right) {
	for place, verbs := range all {
		group, rest, _ := strings.Cut(place, "/")
		resource, sub, _ := strings.Cut(rest, "/")
		for verb := range strings.FieldsSeq(verbs) {
			list = append(list, right{verb: verb, group: group, resource: resource, subresource: sub})
		}
	}
	return list
}

// programRights are the program's own permissions on any cloud, independent of the controllers' accounts.
func programRights(i registry.Installation) []right {
	list := listRights(map[string]string{"/nodes": "get list watch", "/services": "list watch", "/events": "create patch update"})
	const lease = "cloud-controller-manager"
	for verb, name := range map[string]string{"create": "", "get": lease, "update": lease} {
		list = append(list, right{verb: verb, group: "coordination.k8s.io", resource: "leases", namespace: metav1.NamespaceSystem, name: name})
	}
	for _, r := range slices.Concat(i.NodeRights, i.ServiceRights) {
		for _, place := range r.Resources {
			resource, sub, _ := strings.Cut(place, "/")
			for _, verb := range r.Verbs {
				list = append(list, right{verb: verb, group: r.Group, resource: resource, subresource: sub})
			}
		}
	}
	return list
}

// reviewedUser is the user whose rights are checked, as the API server knows it.
func reviewedUser(ctx context.Context, client kubernetes.Interface, as string) string {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case err == nil && review.Status.UserInfo.Username != "":
		return review.Status.UserInfo.Username
	case as != "":
		return as
	}
	return "whoever runs this"
}

// checkRights asks the API server whether the present user has the program's permissions, and each controller's account its own.
func (p *preflight) checkRights(ctx context.Context, client kubernetes.Interface, i registry.Installation) {
	program := programRights(i)
	if p.accounts.place == "" {
		for _, more := range frameworkRights {
			program = append(program, listRights(more)...)
		}
		p.checkRightsAs(ctx, client, p.as, program)
		return
	}
	for _, controller := range slices.Sorted(maps.Keys(frameworkRights)) {
		namespace, name := p.accounts.account(controller)
		program = append(program,
			right{verb: "get", resource: "serviceaccounts", namespace: namespace, name: name},
			right{verb: "create", resource: "serviceaccounts", subresource: "token", namespace: namespace, name: name})
	}
	p.checkRightsAs(ctx, client, p.as, program)
	for _, controller := range slices.Sorted(maps.Keys(frameworkRights)) {
		namespace, name := p.accounts.account(controller)
		account := "system:serviceaccount:" + namespace + ":" + name
		config, err := p.configAs(account)
		if err == nil {
			client, err = kubernetes.NewForConfig(config)
		}
		if err != nil {
			p.note("rights", severityWarning, "the rights of "+account+" cannot be asked for: "+err.Error(), "")
			continue
		}
		p.checkRightsAs(ctx, client, account, listRights(frameworkRights[controller]))
	}
}

// checkRightsAs checks permissions as the client's user.
func (p *preflight) checkRightsAs(ctx context.Context, client kubernetes.Interface, as string, rights []right) {
	who := reviewedUser(ctx, client, as)
	var missing []string
	for _, r := range rights {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Name: r.name,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			p.note("rights", severityWarning, "the rights of "+who+" cannot be asked for: "+err.Error(), "grant the right to impersonate that user")
			return
		}
		if !review.Status.Allowed {
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		missing = slices.Compact(missing)
		p.note("rights", severityError, who+" is not allowed: "+strings.Join(missing, ", "), "install the chart with rbac.create, or grant these; --as asks for the rights of another user, such as the program's ServiceAccount")
		return
	}
	p.note("rights", passed, "everything that the controllers do is allowed to "+who, "")
}
