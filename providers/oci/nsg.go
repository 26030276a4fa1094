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
	// namedGroupMaxAge is how old what is known of a group that a Service names may be: whose it is never changes.
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

// groupRules are the rules of a group.
type groupRules struct {
	ID    string
	Rules []document
}

// securityGroups are the network security groups of the compartment, and their rules.
type securityGroups struct {
	api      *api
	networks *networks
	cluster  *ownership.Cluster
	tokens   *retryTokens

	known *inventory.Inventory[string, *securityGroup]
	rules *inventory.Inventory[string, groupRules]
	// mu is held while what was written is noted.
	mu sync.Mutex

	compartments *compartments[*securityGroup]
}

func newSecurityGroups(a *api, n *networks, c *ownership.Cluster, t *retryTokens) *securityGroups {
	g := &securityGroups{api: a, networks: n, cluster: c, tokens: t}
	g.compartments = &compartments[*securityGroup]{
		api: a, cluster: c, what: "network security groups", path: "/networkSecurityGroups", known: func() []*securityGroup { return g.known.PeekAll() },
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

func groupPath(id string) string { return "/networkSecurityGroups/" + url.PathEscape(id) }

func (g *securityGroup) ended() bool { return g.State == "TERMINATED" || g.State == "TERMINATING" }

// at implements placed.
func (g *securityGroup) at() (name, compartment string) { return g.Name, g.Compartment }

func (g *securityGroups) list(ctx context.Context) ([]*securityGroup, int, error) {
	all, pages, err := g.compartments.list(ctx)
	return slices.DeleteFunc(all, (*securityGroup).ended), pages, err
}

func (g *securityGroups) get(ctx context.Context, id string) (*securityGroup, error) {
	found, what := &securityGroup{}, "network security group "+id
	switch err := g.api.get(ctx, what, groupPath(id), found); {
	case err != nil:
		return nil, err
	case found.ID != id:
		return nil, cloudapi.Unclear("reading "+what, "the answer is about another one")
	case found.ended():
		return nil, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: "reading " + what, Message: "it is deleted"}
	}
	return found, nil
}

// groupName is the name that Oracle's own controller gives.
func groupName(service *v1.Service) string {
	name := service.Namespace + "/" + service.Name + "/" + string(service.UID) + "/nsg"
	return ocilimits.GroupName.Cut(name)
}

// checkNamed refuses a group that was made for another Service, which could not be deleted with that one then. What a load balancer has
// stays, and Oracle judges what the credential may not see. One whose Service is gone hinders nobody.
func (g *securityGroups) checkNamed(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer) error {
	key := annotationGroups
	if isNetworkService(service) {
		key = networkGroups
	}
	for _, id := range s.groups() {
		if lb != nil && slices.Contains(lb.Groups, id) {
			continue
		}
		named, err := g.known.Get(ctx, id, inventory.Query{MaxAge: namedGroupMaxAge})
		switch {
		case unreachable(err):
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

// isOrphaned reports whether a group was made for a Service of this cluster that is gone.
func (g *securityGroups) isOrphaned(ctx context.Context, group *securityGroup) (bool, error) {
	mark, err := g.cluster.Mark(ctx)
	if err != nil || mark == "" || group.Tags[tagCluster] != mark {
		return false, err
	}
	list, err := g.cluster.Services(ctx)
	has := func(s *v1.Service) bool { return string(s.UID) == group.Tags[tagService] }
	return len(list) > 0 && !slices.ContainsFunc(list, has), err
}

// managed finds the group that was made for a Service: by its name and its tags, of which there may be more; nil is none. Of several,
// which a faulty controller may have made, one that is attached counts, or else the newest.
func (g *securityGroups) managed(
	ctx context.Context, service *v1.Service, attached []string, goes bool, q inventory.Query,
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
		return nil, g.compartments.doubt(service, goes)
	}
	return found[0], nil
}

// groupRule is a rule of a network security group.
func groupRule(service *v1.Service, egress bool, kind, other, protocol string, port int) document {
	o := opening{egress: egress, protocol: protocol, port: port, network: other}
	d := o.rule("service-uid-" + string(service.UID))
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
		text, _ := d[key].(string)
		parts = append(parts, text)
	}
	o, _ := openingOf(d, d["direction"] == "EGRESS")
	return strings.Join(append(parts, fmt.Sprint(o.protocol, " ", o.port)), "|")
}

// groupEdit is a change of a group's rules.
type groupEdit struct {
	id     string
	add    []document
	remove []string
	// tag is set where the group is to be tagged as managed, and tags are those that it has.
	tag  bool
	tags map[string]string
}

// groupPlan lists the changes of network security groups for a Service.
type groupPlan struct {
	// create is the request for the group of the load balancer; nil where no group is wanted.
	create document
	edits  []groupEdit
	// obsolete is a group that was made for the Service and is not wanted any more.
	obsolete *securityGroup
}

// desiredGroupRules are the rules of the load balancer's group and of those of the nodes.
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

// plan computes what is to become of network security groups. group is that of the load balancer; nil where there is none yet.
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

// backsOf are the groups of nodes that the rules of a load balancer's group lead to.
func backsOf(rules []document, service *v1.Service) (all []string) {
	for _, d := range rules {
		to, _ := d["destination"].(string)
		if d["description"] == "service-uid-"+string(service.UID) && d["destinationType"] == sideGroup && !slices.Contains(all, to) {
			all = append(all, to)
		}
	}
	slices.Sort(all)
	return all
}

// ruleDifference is which rules of a Service are missing, and the IDs of those that it has besides. Rules with another description are
// somebody else's.
func ruleDifference(have, want []document, service *v1.Service) (add []document, remove []string) {
	there := map[string]bool{}
	for _, d := range have {
		if d["description"] != "service-uid-"+string(service.UID) {
			continue
		}
		key := ruleKey(d)
		id, _ := d["id"].(string)
		if there[key] || !slices.ContainsFunc(want, func(o document) bool { return ruleKey(o) == key }) {
			remove = append(remove, id)
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

// planCreation makes the group of a load balancer. A token makes it safe to ask again.
func (g *securityGroups) planCreation(service *v1.Service, d desired) change {
	name, _ := d.group.create["displayName"].(string)
	what := "network security group " + name
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
			_, err = g.api.call(ctx, "creating "+what, http.MethodPost, "/networkSecurityGroups", d.group.create, made, token)
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

// openings returns the changes that let traffic in: before the load balancer is changed.
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

// closings returns the changes that end what is not wanted any more.
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
			g.note(id, body, made, err)
			return o, err
		},
	}
}

// write adds rules to a group, or removes some, and returns those that were made. The answer to a removal has no document.
func (g *securityGroups) write(ctx context.Context, what, path string, body document) ([]document, error) {
	var made struct {
		Rules []document `json:"securityRules"`
	}
	var out any
	if body["securityRules"] != nil {
		out = &made
	}
	_, err := g.api.call(ctx, what, http.MethodPost, path, body, out, "")
	return made.Rules, err
}

// note notes what a group has by a write of ours: listings may show it later.
func (g *securityGroups) note(id string, body document, made []document, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.rules.Peek(id)
	asked, _ := body["securityRules"].([]document)
	if err != nil || !ok || len(made) != len(asked) || slices.ContainsFunc(made, func(d document) bool { return d["id"] == nil }) {
		g.rules.Doubt(id)
		return
	}
	removed, _ := body["securityRuleIds"].([]string)
	left := slices.DeleteFunc(slices.Clone(known.Rules), func(d document) bool {
		id, _ := d["id"].(string)
		return slices.Contains(removed, id)
	})
	g.rules.Put(groupRules{id, append(left, made...)})
}

// planTag says of a group of nodes that rules in it are managed. Under its ETag: other tags stay as they are.
func (g *securityGroups) planTag(e groupEdit) change {
	what := "network security group " + e.id
	return change{
		Planned: contract.Planned{Action: contract.PlanChange, Object: what, Detail: "tag " + tagManagedBy},
		Compare: func() (before, after any) { return e.tags, document{tagManagedBy: createdBy} },
		Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			var doc document
			header, err := g.api.call(ctx, "reading "+what, http.MethodGet, groupPath(e.id), nil, &doc, "")
			if err != nil {
				return o, cloudapi.NotAbsence(err)
			}
			has, _ := doc["freeformTags"].(document)
			tags := document{}
			maps.Copy(tags, has)
			tags[tagManagedBy] = createdBy
			body, under := document{"freeformTags": jsondoc.Clone(tags)}, http.Header{ifMatch: {header.Get("Etag")}}
			_, err = g.api.send(ctx, "tagging "+what, http.MethodPut, groupPath(e.id), body, nil, under)
			g.known.Invalidate(e.id)
			if errors.Is(err, cloudapi.ErrConflict) {
				return o, services.ErrGone
			}
			return o, cloudapi.NotAbsence(err)
		},
	}
}

// planDeletion removes the group of a load balancer, which must be attached no more.
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

// remove deletes a group under the ETag that it has now.
func (g *securityGroups) remove(ctx context.Context, group *securityGroup) error {
	what := "network security group " + group.Name
	header, err := g.api.call(ctx, "reading "+what, http.MethodGet, groupPath(group.ID), nil, &document{}, "")
	if err == nil {
		_, err = g.api.send(ctx, "deleting "+what, http.MethodDelete, groupPath(group.ID), nil, nil, http.Header{ifMatch: {header.Get("Etag")}})
	}
	g.known.Invalidate(group.ID)
	if errors.Is(err, cloudapi.ErrNotFound) {
		err = nil
		if doubt := g.networks.checkSight(ctx, proofMaxAge); doubt != nil {
			return cloudapi.Unclear("deleting "+what, "it is not found, which does not prove that it is gone: %s", doubt)
		}
	}
	if err == nil {
		g.known.Forget(group.ID)
	}
	return err
}

// removals takes a Service's rules out of the groups of nodes, also of those that it names now. missed are errors of groups that are not
// shown.
func (g *securityGroups) removals(
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
		case unreachable(err):
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

// creationOfGroup is the request for the group of a load balancer.
func creationOfGroup(service *v1.Service, compartment, vcn, mark string) document {
	tags := document{tagCreatedBy: createdBy, tagService: string(service.UID)}
	if mark != "" {
		tags[tagCluster] = mark
	}
	return document{"compartmentId": compartment, "vcnId": vcn, "displayName": groupName(service), "freeformTags": tags}
}
