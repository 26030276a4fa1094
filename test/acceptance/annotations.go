package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// trial is a portable annotation that the cloud serves, with values to try.
type trial struct {
	key string
	// sets are candidates for a Service's annotations: the first that the cloud accepts is tried. Without any, the user has to give a
	// value.
	sets []map[string]string
	// alone is set for what a load balancer gets when it is made.
	alone bool
}

// name is that of the step.
func (t trial) name() string { return strings.TrimPrefix(t.key, portable.Prefix) }

// each are sets of one value each, with what goes with them.
func each(key string, with map[string]string, values ...string) []map[string]string {
	var sets []map[string]string
	for _, v := range values {
		set := map[string]string{key: v}
		maps.Copy(set, with)
		sets = append(sets, set)
	}
	return sets
}

// candidates are values that mean something anywhere. Which of them a cloud takes, its tables say.
func candidates(run string) map[string][]map[string]string {
	http := map[string]string{portable.CheckProtocol: portable.CheckHTTP}
	return map[string][]map[string]string{
		portable.Scheme:             each(portable.Scheme, nil, portable.SchemeInternal),
		portable.Name:               each(portable.Name, nil, run),
		portable.ProxyProtocol:      each(portable.ProxyProtocol, nil, portable.ProxyV2, portable.ProxyV1),
		portable.CheckProtocol:      each(portable.CheckProtocol, nil, portable.CheckHTTP, portable.CheckHTTPS, portable.CheckTCP),
		portable.CheckPath:          each(portable.CheckPath, http, "/healthz"),
		portable.CheckPort:          each(portable.CheckPort, nil, "10256", portable.NodePort),
		portable.CheckInterval:      each(portable.CheckInterval, nil, "20s", "30s", "15s", "10s", "5s"),
		portable.CheckTimeout:       each(portable.CheckTimeout, nil, "4s", "6s", "3s", "2s"),
		portable.HealthyThreshold:   each(portable.HealthyThreshold, nil, "4", "3", "2"),
		portable.UnhealthyThreshold: each(portable.UnhealthyThreshold, nil, "4", "3", "2"),
		portable.IdleTimeout:        each(portable.IdleTimeout, nil, "300s", "240s", "120s"),
		portable.Algorithm:          each(portable.Algorithm, nil, portable.LeastConnections, portable.SourceIP, portable.RoundRobin),
		portable.Hostname:           each(portable.Hostname, nil, "acceptance.example.com"),
		portable.Tags:               each(portable.Tags, nil, "purpose=acceptance,stage=test"),
	}
}

// trials are the portable annotations that a cloud serves.
func trials(p registry.Provider, values map[string]string, run string) []trial {
	known := candidates(run)
	var all []trial
	for _, row := range portable.Annotations.Rows() {
		if len(p.Cloud().Pairs(row.Key)) == 0 && !portable.Shared(row.Key) {
			continue
		}
		t := trial{key: row.Key, sets: known[row.Key], alone: row.Key == portable.Scheme || row.Key == portable.Name}
		if value, given := values[row.Key]; given {
			with := map[string]string{}
			if certificate := values[portable.Certificate]; row.Key == portable.TLSPorts && certificate != "" {
				with[portable.Certificate] = certificate
			}
			t.sets, t.alone = each(row.Key, with, value), true
		}
		all = append(all, t)
	}
	return all
}

// tryAnnotation: what a portable annotation asks for is there, and then no more.
func (s *suite) tryAnnotation(ctx context.Context, t trial, saw *[]string) error {
	if t.key == portable.BackendSelector && len(t.sets) == 0 {
		node, err := s.oneNode(ctx)
		if err != nil {
			return err
		}
		t.sets = each(t.key, nil, v1.LabelHostname+"="+node)
	}
	if len(t.sets) == 0 {
		return skip("it needs something of yours: -value " + t.key + "=…")
	}
	set, err := s.acceptedSet(ctx, t)
	if err != nil {
		return err
	}
	*saw = append(*saw, assignments(set))
	if t.alone || s.atCreation(set) {
		return s.tryAlone(ctx, t, set, saw)
	}
	return s.tryInPlace(ctx, set, saw)
}

// oneNode is the name of one of several nodes, as its label has it.
func (s *suite) oneNode(ctx context.Context) (string, error) {
	nodes, err := s.cloudNodes(ctx)
	if err != nil {
		return "", err
	}
	nodes = slices.DeleteFunc(nodes, func(n v1.Node) bool { return !eligible(&n) || n.Labels[v1.LabelHostname] == "" })
	if len(nodes) < 2 {
		return "", skip("it takes two nodes that are ready and behind load balancers")
	}
	return nodes[0].Labels[v1.LabelHostname], nil
}

// tryInPlace gives the Service of the run a set, and takes it away again.
func (s *suite) tryInPlace(ctx context.Context, set map[string]string, saw *[]string) error {
	if err := s.hasWeb(ctx); err != nil {
		return err
	}
	planned, err := s.change(ctx, web, func(service *v1.Service) {
		if service.Annotations == nil {
			service.Annotations = map[string]string{}
		}
		maps.Copy(service.Annotations, set)
	})
	if err == nil && len(planned) > 0 {
		*saw = append(*saw, "planned and done: "+words(planned))
	}
	if err == nil {
		err = s.shown(ctx, web, set)
	}
	if err != nil {
		return err
	}
	return s.apply(ctx, web, func(service *v1.Service) {
		maps.DeleteFunc(service.Annotations, func(key, _ string) bool { return set[key] != "" && s.Annotations[key] == "" })
	})
}

func assignments(set map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(set)) {
		parts = append(parts, key+"="+set[key])
	}
	return strings.Join(parts, ", ")
}

// acceptedSet is the first set that the cloud neither refuses nor ignores, as `validate` says.
func (s *suite) acceptedSet(ctx context.Context, t trial) (map[string]string, error) {
	var reasons []string
	for _, set := range t.sets {
		ignored, err := s.judge(ctx, s.draft(web, set))
		if _, refused := errors.AsType[refusal](err); refused {
			reasons = append(reasons, err.Error())
			continue
		}
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(ignored, func(words string) bool { return strings.Contains(words, t.key) })
		if i < 0 {
			return set, nil
		}
		reasons = append(reasons, ignored[i])
	}
	return nil, skip("validate takes none of the values that this knows: " + strings.Join(reasons, "; "))
}

// atCreation reports whether what a set becomes in the cloud's own annotations counts when the load balancer is made, and not later.
func (s *suite) atCreation(set map[string]string) bool {
	own := portable.Translate(s.provider.Cloud(), s.draft(web, set)).From
	return slices.ContainsFunc(s.provider.Annotations, func(r schema.AnnotationRow) bool {
		_, made := own[r.Key]
		return made && r.Changes != schema.InPlace
	})
}

// tryAlone tries a set on a Service of its own.
func (s *suite) tryAlone(ctx context.Context, t trial, set map[string]string, saw *[]string) error {
	name := "with-" + t.name()
	if err := s.serve(ctx, s.draft(name, set), saw); err != nil {
		return err
	}
	if err := s.shown(ctx, name, set); err != nil {
		return err
	}
	return s.erase(ctx, name)
}

// shown waits until the status shows the hostname, where a set has one.
func (s *suite) shown(ctx context.Context, name string, set map[string]string) error {
	hostname := set[portable.Hostname]
	if hostname == "" {
		return nil
	}
	return s.eventually(ctx, "the hostname in the status", func(ctx context.Context) error {
		service, err := s.service(ctx, name)
		if err != nil {
			return err
		}
		if in := service.Status.LoadBalancer.Ingress; len(in) == 0 || in[0].Hostname != hostname {
			return errors.New("the status shows " + fmt.Sprint(in))
		}
		return nil
	})
}
