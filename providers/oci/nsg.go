package oci

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file manages network security groups: one of the load balancer, which is made for its Service, and rules in those of the nodes.

const (
	tagCreatedBy, createdBy = "CreatedBy", "CCM"
	tagService              = "ServiceUid"
	// namedGroupMaxAge is long because a group's owner never changes.
	namedGroupMaxAge = time.Hour
	tagManagedBy     = "ManagedBy"

	sideGroup, sideNetwork = "NETWORK_SECURITY_GROUP", "CIDR_BLOCK"
)

// securityGroup is a network security group. It is never changed in place.
type securityGroup struct {
	ID          string            `json:"id"`
	Name        string            `json:"displayName"`
	Compartment string            `json:"compartmentId"`
	State       string            `json:"lifecycleState"`
	Created     string            `json:"timeCreated"`
	Tags        map[string]string `json:"freeformTags"`
}

type groupRules struct {
	ID    string
	Rules []document
}

// securityGroups reads and changes network security groups and their rules.
type securityGroups struct {
	api      *api
	networks *networks
	cluster  *ownership.Cluster
	tokens   *retryTokens

	known *inventory.Inventory[string, *securityGroup]
	rules *inventory.Inventory[string, groupRules]
	// mu is held while written rules are stored.
	mu sync.Mutex

	compartments *compartments[*securityGroup]
}

func newSecurityGroups(a *api, n *networks, c *ownership.Cluster, t *retryTokens) *securityGroups {
	g := &securityGroups{api: a, networks: n, cluster: c, tokens: t}
	g.compartments = &compartments[*securityGroup]{
		api: a, cluster: c, what: "network security groups", path: groupsPath, known: func() []*securityGroup { return g.known.PeekAll() },
		name: groupName,
	}
	g.known = inventory.New(inventory.Source[string, *securityGroup]{
		Kind: "network security group", ID: func(g *securityGroup) string { return g.ID }, Get: g.get,
		List:    g.list,
		Indexes: map[string]func(*securityGroup) []string{indexName: func(g *securityGroup) []string { return []string{g.Name} }},
	})
	g.rules = inventory.New(inventory.Source[string, groupRules]{
		Kind: "rules of a network security group", ID: func(r groupRules) string { return r.ID },
		Get: func(ctx context.Context, id string) (groupRules, error) {
			all, _, err := list[document](ctx, a, "rules of network security group "+id, groupPath(id)+"/securityRules", url.Values{})
			return groupRules{id, all}, err
		},
	})
	return g
}

const groupsPath = "/networkSecurityGroups"

func groupPath(id string) string { return groupsPath + "/" + url.PathEscape(id) }

func (g *securityGroup) isTerminated() bool {
	return g.State == "TERMINATED" || g.State == "TERMINATING"
}

// place implements placedObject.
func (g *securityGroup) place() (name, compartment string) { return g.Name, g.Compartment }

func (g *securityGroups) list(ctx context.Context) ([]*securityGroup, int, error) {
	all, pages, err := g.compartments.list(ctx)
	return slices.DeleteFunc(all, (*securityGroup).isTerminated), pages, err
}

func (g *securityGroups) get(ctx context.Context, id string) (*securityGroup, error) {
	found, err := getByID(ctx, g.api, "network security group", groupsPath, id, func(o securityGroup) string { return o.ID })
	switch {
	case err != nil:
		return nil, err
	case found.isTerminated():
		return nil, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: "reading network security group " + id, Message: "it is deleted"}
	}
	return &found, nil
}

// groupName returns the name that Oracle's own controller gives.
func groupName(service *v1.Service) string {
	name := service.Namespace + "/" + service.Name + "/" + string(service.UID) + "/nsg"
	return ocilimits.GroupName.Cut(name)
}

// checkNamed refuses a group that was created for another Service, because it could not be deleted with that one. Groups that the load
// balancer has stay, and Oracle judges those that the user may not see.
func (g *securityGroups) checkNamed(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer) error {
	key := annotationGroups
	if isNLBService(service) {
		key = nlbGroups
	}
	for _, id := range s.groups() {
		if lb != nil && slices.Contains(lb.Groups, id) {
			continue
		}
		named, err := g.known.Get(ctx, id, inventory.Query{MaxAge: namedGroupMaxAge})
		switch {
		case isUnreachable(err):
		case err != nil:
			return err
		case named.Tags[tagCreatedBy] == createdBy && named.Tags[tagService] != string(service.UID):
			orphaned, err := g.isOrphaned(ctx, named)
			if err != nil {
				return err
			}
			if !orphaned {
				return refuseFor(key, id, "was made for another Service, with which it goes; name a group of your own")
			}
		}
	}
	return nil
}

// isOrphaned reports whether a group was created for a Service of this cluster that no longer exists.
func (g *securityGroups) isOrphaned(ctx context.Context, group *securityGroup) (bool, error) {
	mark, err := g.cluster.Mark(ctx)
	if err != nil || mark == "" || group.Tags[tagCluster] != mark {
		return false, err
	}
	list, err := g.cluster.Services(ctx)
	has := func(s *v1.Service) bool { return string(s.UID) == group.Tags[tagService] }
	return len(list) > 0 && !slices.ContainsFunc(list, has), err
}

// findManaged returns the group that was created for the Service, or nil. Of several, an attached one takes precedence, then the newest.
func (g *securityGroups) findManaged(
	ctx context.Context, service *v1.Service, attached []string, leaving bool, q inventory.Query,
) (*securityGroup, error) {
	found, err := g.known.Find(ctx, indexName, groupName(service), q)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(slices.Clone(found), func(o *securityGroup) bool {
		return o.Tags[tagCreatedBy] != createdBy || o.Tags[tagService] != string(service.UID)
	})
	slices.SortFunc(found, func(a, b *securityGroup) int {
		at := func(o *securityGroup) string {
			if slices.Contains(attached, o.ID) {
				return "1"
			}
			return "0" + o.Created
		}
		return strings.Compare(at(b)+b.ID, at(a)+a.ID)
	})
	if len(found) == 0 {
		return nil, g.compartments.checkReadable(service, leaving)
	}
	return found[0], nil
}

// descriptionFor marks the rules of a Service.
func descriptionFor(service *v1.Service) string { return "service-uid-" + string(service.UID) }

// groupRule returns a rule of a network security group.
func groupRule(service *v1.Service, egress bool, kind, other, protocol string, port int) document {
	o := opening{egress: egress, protocol: protocol, port: port, network: other}
	d := o.rule(descriptionFor(service))
	d["direction"], d["sourceType"] = "INGRESS", kind
	if egress {
		d["direction"], d["destinationType"] = "EGRESS", kind
		delete(d, "sourceType")
	}
	return d
}

// ruleKey tells rules apart.
func ruleKey(d document) string {
	var parts []string
	for _, key := range []string{"description", "direction", "protocol", "source", "sourceType", "destination", "destinationType"} {
		parts = append(parts, fieldOf[string](d, key))
	}
	o, _ := openingOf(d, d["direction"] == "EGRESS")
	return strings.Join(append(parts, fmt.Sprint(o.protocol, " ", o.port)), "|")
}

// groupEdit is a change of a group's rules.
type groupEdit struct {
	id     string
	add    []document
	remove []string
	// tag is set if the group needs the tag that its rules are managed; tags are those that it has.
	tag  bool
	tags map[string]string
}

// groupPlan holds the changes of network security groups for a Service.
type groupPlan struct {
	// create is the request for the load balancer's group. It is nil if none is wanted.
	create document
	edits  []groupEdit
	// obsolete is a group that was created for the Service, which no longer needs it.
	obsolete *securityGroup
}

// desiredGroupRules returns the rules of the load balancer's group, and of the groups of the nodes (backs).
func desiredGroupRules(service *v1.Service, a access, group string, backs []string) map[string][]document {
	all := map[string][]document{}
	add := func(id string, d document) {
		if !slices.ContainsFunc(all[id], func(o document) bool { return ruleKey(o) == ruleKey(d) }) {
			all[id] = append(all[id], d)
		}
	}
	for _, p := range a.ports {
		for _, network := range a.sources {
			add(group, groupRule(service, false, sideNetwork, network, p.protocol, p.port))
		}
		for _, back := range backs {
			add(group, groupRule(service, true, sideGroup, back, p.protocol, p.node))
			add(group, groupRule(service, true, sideGroup, back, numberTCP, a.health))
			add(back, groupRule(service, false, sideGroup, group, p.protocol, p.node))
			add(back, groupRule(service, false, sideGroup, group, numberTCP, a.health))
			for _, network := range a.sources {
				if a.preserve {
					add(back, groupRule(service, false, sideNetwork, network, p.protocol, p.node))
				}
			}
		}
	}
	return all
}

// plan computes the changes of groups. group is that of the load balancer, or nil.
func (g *securityGroups) plan(
	ctx context.Context, service *v1.Service, a access, create document, group *securityGroup, backs []string,
) (groupPlan, error) {
	p := groupPlan{create: create}
	if group == nil {
		return p, nil
	}
	front, err := g.rules.Get(ctx, group.ID, inventory.Query{MaxAge: observedMaxAge})
	if err != nil {
		return p, cloudapi.NotAbsence(err)
	}
	all := append([]string{group.ID}, backs...)
	former := backsOf(front.Rules, service)
	wanted := desiredGroupRules(service, a, group.ID, backs)
	for _, id := range former { // those that are named no more
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	for n, id := range all {
		e := groupEdit{id: id}
		there, err := g.rules.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge})
		if errors.Is(err, cloudapi.ErrNotFound) && len(wanted[id]) == 0 {
			continue // the group of nodes is gone, and its rules with it
		}
		if err != nil {
			return p, cloudapi.NotAbsence(err)
		}
		e.add, e.remove = ruleDifference(there.Rules, wanted[id], service)
		if n > 0 && len(wanted[id]) > 0 {
			back, err := g.known.Get(ctx, id, inventory.Query{MaxAge: attachedMaxAge})
			if err != nil {
				return p, cloudapi.NotAbsence(err)
			}
			_, tagged := back.Tags[tagManagedBy]
			e.tag, e.tags = !tagged, back.Tags
		}
		if len(e.add)+len(e.remove) > 0 || e.tag {
			p.edits = append(p.edits, e)
		}
	}
	return p, nil
}

// backsOf returns the groups of nodes to which the rules of a load balancer's group lead.
func backsOf(rules []document, service *v1.Service) (all []string) {
	for _, d := range rules {
		to := fieldOf[string](d, "destination")
		if d["description"] == descriptionFor(service) && d["destinationType"] == sideGroup && !slices.Contains(all, to) {
			all = append(all, to)
		}
	}
	slices.Sort(all)
	return all
}

// ruleDifference returns the rules that a Service lacks, and the IDs of those that it has in addition. Rules with another description are
// somebody else's.
func ruleDifference(have, want []document, service *v1.Service) (add []document, remove []string) {
	there := map[string]bool{}
	for _, d := range have {
		if d["description"] != descriptionFor(service) {
			continue
		}
		key := ruleKey(d)
		if there[key] || !slices.ContainsFunc(want, func(o document) bool { return ruleKey(o) == key }) {
			remove = append(remove, fieldOf[string](d, "id"))
			continue
		}
		there[key] = true
	}
	for _, d := range want {
		if !there[ruleKey(d)] {
			add = append(add, d)
		}
	}
	return add, remove
}

// planCreation creates the group of a load balancer. A token makes it safe to repeat.
func (g *securityGroups) planCreation(service *v1.Service, d desired) change {
	what := "network security group " + groupName(service)
	return change{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: what}, Creates: true, Replan: true,
		Compare: func() (before, after any) { return nil, d.group.create },
		Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			key := service.UID + "/nsg"
			token, err := g.tokens.tokenFor(key, d.group.create)
			if err != nil {
				return o, err
			}
			made := &securityGroup{}
			_, err = g.api.call(ctx, "creating "+what, http.MethodPost, groupsPath, d.group.create, made, http.Header{tokenHeader: {token}})
			if err == nil && made.ID == "" {
				err = cloudapi.Unclear("creating "+what, "the answer names no group")
			}
			if err == nil || cloudapi.Refused(err) {
				g.tokens.forget(key)
			}
			if err != nil {
				g.known.InvalidateAll() // it may have been made
				return o, cloudapi.NotAbsence(err)
			}
			g.known.Put(made)
			o.group = made
			return o, nil
		},
	}
}

// openings returns the changes that let traffic in, and come before those of the load balancer.
func (g *securityGroups) openings(edits []groupEdit) (all []change) {
	for _, e := range edits {
		for some := range slices.Chunk(e.add, ocilimits.RulesAtOnce.Max) {
			all = append(all, g.planAddition(e.id, some))
		}
		if e.tag {
			all = append(all, g.planTag(e))
		}
	}
	return all
}

func (g *securityGroups) planAddition(id string, rules []document) change {
	c := g.planEdit(id, fmt.Sprintf("adding %d rules", len(rules)), "addSecurityRules", document{"securityRules": rules})
	c.Opens = id
	return c
}

// closings returns the changes that remove rules.
func (g *securityGroups) closings(edits []groupEdit) (all []change) {
	for _, e := range edits {
		for some := range slices.Chunk(e.remove, ocilimits.RulesAtOnce.Max) {
			c := g.planEdit(e.id, fmt.Sprintf("removing %d rules", len(some)), "removeSecurityRules", document{"securityRuleIds": some})
			c.Closes = e.id
			all = append(all, c)
		}
	}
	return services.EachTried(all)
}

// planEdit adds or removes rules.
func (g *securityGroups) planEdit(id, detail, action string, body document) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "network security group " + id, Detail: detail},
		Compare: func() (before, after any) { return nil, body },
		Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			made, err := g.write(ctx, detail+" of network security group "+id, groupPath(id)+"/actions/"+action, body)
			if errors.Is(err, cloudapi.ErrNotFound) || errors.Is(err, cloudapi.ErrConflict) {
				err = services.ErrGone // it was changed meanwhile, or an answer was lost: all is looked at again
			}
			g.noteRules(id, body, made, err)
			return o, err
		},
	}
}

// write adds or removes rules, and returns those that were created. A removal has no response document.
func (g *securityGroups) write(ctx context.Context, what, path string, body document) ([]document, error) {
	var made struct {
		Rules []document `json:"securityRules"`
	}
	var out any
	if body["securityRules"] != nil {
		out = &made
	}
	_, err := g.api.call(ctx, what, http.MethodPost, path, body, out, nil)
	return made.Rules, err
}

// noteRules stores the rules of a group after our own write, because listings may be behind.
func (g *securityGroups) noteRules(id string, body document, made []document, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.rules.Peek(id)
	asked, _ := body["securityRules"].([]document)
	if err != nil || !ok || len(made) != len(asked) || slices.ContainsFunc(made, func(d document) bool { return d["id"] == nil }) {
		g.rules.Doubt(id)
		return
	}
	removed, _ := body["securityRuleIds"].([]string)
	left := slices.DeleteFunc(slices.Clone(known.Rules), func(d document) bool { return slices.Contains(removed, fieldOf[string](d, "id")) })
	g.rules.Put(groupRules{id, append(left, made...)})
}

// planTag tags a group of nodes whose rules are managed. It writes under the ETag, so that other tags stay.
func (g *securityGroups) planTag(e groupEdit) change {
	what := "network security group " + e.id
	return change{
		Planned: contract.Planned{Action: contract.PlanChange, Object: what, Detail: "tag " + tagManagedBy},
		Compare: func() (before, after any) { return e.tags, document{tagManagedBy: createdBy} },
		Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			var doc document
			header, err := g.api.call(ctx, "reading "+what, http.MethodGet, groupPath(e.id), nil, &doc, nil)
			if err != nil {
				return o, cloudapi.NotAbsence(err)
			}
			tags := document{}
			maps.Copy(tags, fieldOf[document](doc, "freeformTags"))
			tags[tagManagedBy] = createdBy
			body, under := document{"freeformTags": jsondoc.Clone(tags)}, http.Header{ifMatch: {header.Get("Etag")}}
			_, err = g.api.call(ctx, "tagging "+what, http.MethodPut, groupPath(e.id), body, nil, under)
			g.known.Invalidate(e.id)
			if errors.Is(err, cloudapi.ErrConflict) {
				return o, services.ErrGone
			}
			return o, cloudapi.NotAbsence(err)
		},
	}
}

// planDeletion deletes the group of a load balancer, which must not be attached.
func (g *securityGroups) planDeletion(group *securityGroup) change {
	what := "network security group " + group.Name
	return change{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: what}, Compare: func() (before, after any) { return group, nil },
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			if err := g.remove(ctx, group); err != nil {
				return o, err
			}
			g.tokens.forget(req.Service.UID + "/nsg")
			o.group = nil
			return o, nil
		},
	}
}

// remove deletes a group under its present ETag.
func (g *securityGroups) remove(ctx context.Context, group *securityGroup) error {
	what := "network security group " + group.Name
	header, err := g.api.call(ctx, "reading "+what, http.MethodGet, groupPath(group.ID), nil, &document{}, nil)
	if err == nil {
		_, err = g.api.call(ctx, "deleting "+what, http.MethodDelete, groupPath(group.ID), nil, nil, http.Header{ifMatch: {header.Get("Etag")}})
	}
	g.known.Invalidate(group.ID)
	if errors.Is(err, cloudapi.ErrNotFound) {
		err = nil
		if doubt := g.networks.checkVisible(ctx, proofMaxAge); doubt != nil {
			return cloudapi.Unclear("deleting "+what, "it is not found, which does not prove that it is gone: %s", doubt)
		}
	}
	if err == nil {
		g.known.Forget(group.ID)
	}
	return err
}

// planRemovals removes a Service's rules from the groups of nodes, including those in the annotation. missed are errors of groups that the
// cloud does not show.
func (g *securityGroups) planRemovals(
	ctx context.Context, service *v1.Service, group *securityGroup, named []string,
) (all []groupEdit, missed []error, err error) {
	front, err := g.rules.Get(ctx, group.ID, inventory.Query{MaxAge: observedMaxAge})
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil, err
	}
	for _, id := range append(backsOf(front.Rules, service), named...) {
		if slices.ContainsFunc(all, func(e groupEdit) bool { return e.id == id }) || !ocid.MatchString(id) {
			continue
		}
		there, err := g.rules.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge})
		switch {
		case isUnreachable(err):
			missed = append(missed, err)
			continue
		case err != nil:
			return nil, missed, err
		}
		e := groupEdit{id: id}
		_, e.remove = ruleDifference(there.Rules, nil, service)
		all = append(all, e)
	}
	return all, missed, nil
}

// creationOfGroup returns the request for the group of a load balancer.
func creationOfGroup(service *v1.Service, compartment, vcn, mark string) document {
	tags := document{tagCreatedBy: createdBy, tagService: string(service.UID)}
	if mark != "" {
		tags[tagCluster] = mark
	}
	return document{"compartmentId": compartment, "vcnId": vcn, "displayName": groupName(service), "freeformTags": tags}
}
