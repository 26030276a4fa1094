package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// tryRelease: a replica holds the lease and renews it, all pods are ready, the cloud's API works, and preflight finds nothing wrong.
func (s *suite) tryRelease(ctx context.Context, saw *[]string) error {
	var holder string
	if err := s.eventually(ctx, "a release that is healthy", func(ctx context.Context) (err error) {
		holder, err = s.healthy(ctx)
		return err
	}); err != nil {
		return err
	}
	*saw = append(*saw, "the lease is held by "+holder)
	checks, err := s.preflight(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, c := range checks {
		if c.Result == "error" {
			problems = append(problems, fmt.Errorf("preflight: %s: %s; to do: %s", c.Check, c.Message, c.Fix))
		}
	}
	found, known, err := s.orphans(ctx)
	switch {
	case err != nil:
		problems = append(problems, err)
	case !known:
		*saw = append(*saw, "this cloud's provider cannot tell orphans, so that nobody looks for them")
	case len(found) > 0:
		*saw = append(*saw, fmt.Sprintf("%d orphans were there before this run", len(found)))
	}
	s.before = found
	return errors.Join(problems...)
}

// healthy says who leads, or what is wrong with the release.
func (s *suite) healthy(ctx context.Context) (holder string, err error) {
	namespace, name := s.release.lease()
	lease, err := s.kube.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the lease: %w", err)
	}
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return "", fmt.Errorf("nobody holds the lease %s/%s", namespace, name)
	}
	holder = *lease.Spec.HolderIdentity
	if age := time.Since(lease.Spec.RenewTime.Time); age > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second {
		return "", fmt.Errorf("the lease of %s was renewed %s ago", holder, age.Round(time.Second))
	}
	pods, err := s.release.pods(ctx, s.kube)
	if err != nil {
		return "", err
	}
	for _, p := range pods {
		if !slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		}) {
			return "", fmt.Errorf("pod %s is not ready", p.Name)
		}
	}
	if !s.metered {
		return holder, nil
	}
	m, err := s.scraper.metrics(ctx)
	switch {
	case err != nil:
		return "", err
	case m.sum("leader_election_master_status", "", "") != 1:
		return "", errors.New("the program whose metrics are read does not lead")
	case !s.provider.InCluster && m.sum("anyccm_cloud_api_up", "", "") < 1:
		return "", errors.New("the program says that the cloud's API does not work; /configz says why")
	}
	return holder, nil
}

// cloudNodes are the Nodes of the cloud, and those that wait for one.
func (s *suite) cloudNodes(ctx context.Context) ([]v1.Node, error) {
	list, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(n v1.Node) bool {
		return n.Spec.ProviderID != "" && !slices.ContainsFunc(s.provider.ProviderIDPrefixes, func(prefix string) bool {
			return strings.HasPrefix(n.Spec.ProviderID, prefix)
		})
	}), nil
}

// tryNodes: every Node of the cloud has what it gets from it, and preflight finds that it agrees with what the cloud says now.
func (s *suite) tryNodes(ctx context.Context, saw *[]string) error {
	nodes, err := s.cloudNodes(ctx)
	if err != nil {
		return err
	}
	s.report.Nodes = len(nodes)
	if len(nodes) == 0 {
		return fmt.Errorf("the cluster has no node of %s", s.provider.Title)
	}
	var problems []error
	for _, n := range nodes {
		if lacks := lacking(&n); len(lacks) > 0 {
			problems = append(problems, fmt.Errorf("node %s lacks %s", n.Name, strings.Join(lacks, ", ")))
		}
	}
	checks, err := s.preflight(ctx)
	problems = append(problems, err)
	told := false
	for _, c := range checks {
		if !strings.HasPrefix(c.Check, "node") {
			continue
		}
		told = true
		if c.Result != "ok" {
			problems = append(problems, fmt.Errorf("preflight: %s: %s", c.Check, c.Message))
		} else {
			*saw = append(*saw, "preflight: "+c.Message)
		}
	}
	if !told {
		problems = append(problems, errors.New("preflight says nothing about nodes"))
	}
	return errors.Join(problems...)
}

// lacking lists the fields that a Node should have got from its cloud and has not.
func lacking(n *v1.Node) []string {
	var lacks []string
	if slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider }) {
		lacks = append(lacks, "initialisation: it has the taint "+cloudproviderapi.TaintExternalCloudProvider)
	}
	if n.Spec.ProviderID == "" {
		lacks = append(lacks, "a provider ID")
	}
	if n.Labels[v1.LabelInstanceTypeStable] == "" {
		lacks = append(lacks, "the label "+v1.LabelInstanceTypeStable)
	}
	if !slices.ContainsFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type == v1.NodeInternalIP }) {
		lacks = append(lacks, "an internal address")
	}
	return lacks
}

// tryRestart: the program is restarted; afterwards it leads and looks at everything, and has nothing to do.
func (s *suite) tryRestart(ctx context.Context, saw *[]string) error {
	before, holder, err := s.beforeRestart(ctx)
	if err != nil {
		return err
	}
	if err := s.restart(ctx); err != nil {
		return err
	}
	s.did("the program was told to restart")
	if err := s.eventually(ctx, "another program to lead", func(ctx context.Context) error {
		now, err := s.healthyAgain(ctx)
		if err == nil && now == holder {
			err = fmt.Errorf("%s still leads", holder)
		}
		return err
	}); err != nil {
		return err
	}
	services, err := s.services(ctx)
	if err != nil {
		return err
	}
	if s.metered {
		if err := s.eventually(ctx, "the program to look at everything", func(ctx context.Context) error { return s.worked(ctx, before, len(services)) }); err != nil {
			return err
		}
		now := s.count(ctx)
		if now == nil {
			return errors.New("the program's metrics cannot be read any more")
		}
		if writes := now.calls.writes(); len(writes) > 0 {
			return fmt.Errorf("a restart changes nothing, and these calls may have: %s", writes)
		}
		*saw = append(*saw, fmt.Sprintf("no call wrote, of %d after the start", now.calls.total()))
	}
	for _, service := range services {
		planned, err := s.plan(ctx, &service)
		if err != nil {
			return err
		}
		if len(planned) > 0 {
			return fmt.Errorf("after the restart plan still wants: %s", words(planned))
		}
	}
	*saw = append(*saw, "plan is empty")
	return nil
}

// beforeRestart says when the program began and who leads.
func (s *suite) beforeRestart(ctx context.Context) (began float64, holder string, err error) {
	if holder, err = s.healthy(ctx); err != nil || !s.metered {
		return 0, holder, err
	}
	m, err := s.scraper.metrics(ctx)
	return m.sum("process_start_time_seconds", "", ""), holder, err
}

// healthyAgain is healthy after the way to the metrics was opened again, which ends with the pod.
func (s *suite) healthyAgain(ctx context.Context) (string, error) {
	if s.metered && s.MetricsURL == "" {
		if err := s.reach(ctx); err != nil {
			return "", err
		}
	}
	return s.healthy(ctx)
}

// worked is nil once a program that began later has looked at all Services, and rests.
func (s *suite) worked(ctx context.Context, began float64, services int) error {
	m, err := s.scraper.metrics(ctx)
	if err != nil {
		return err
	}
	if m.sum("process_start_time_seconds", "", "") <= began {
		return errors.New("it has not been restarted")
	}
	done := m.sum("workqueue_work_duration_seconds_count", "name", "service")
	waiting := m.sum("workqueue_depth", "name", "service") + m.sum("workqueue_unfinished_work_seconds", "name", "service")
	if done < float64(services) || waiting > 0 {
		return fmt.Errorf("it has looked at %.0f Services, and others wait", done)
	}
	before := m.tally().calls.total()
	if err := wait(ctx, 3*time.Second); err != nil { // what it does for nodes and in the background
		return err
	}
	if now := s.count(ctx); now == nil || now.calls.total() != before {
		return errors.New("it still makes calls")
	}
	return nil
}

// restart deletes the pods of the release, or runs the user's command.
func (s *suite) restart(ctx context.Context) error {
	if s.RestartCommand != "" {
		cmd := exec.CommandContext(ctx, "sh", "-c", s.RestartCommand)
		cmd.Stdout, cmd.Stderr = s.w, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("-restart-command: %w", err)
		}
		return nil
	}
	pods, err := s.release.pods(ctx, s.kube)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return skip("the program runs in no pod; give -restart-command")
	}
	for _, p := range pods {
		if err := s.kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("restarting pod %s: %w", p.Name, err)
		}
	}
	return s.eventually(ctx, "the pods of the release to be replaced", func(ctx context.Context) error {
		now, err := s.release.pods(ctx, s.kube)
		if err != nil {
			return err
		}
		for _, p := range now {
			if slices.ContainsFunc(pods, func(old v1.Pod) bool { return old.UID == p.UID }) {
				return fmt.Errorf("pod %s is still there", p.Name)
			}
		}
		if len(now) < len(pods) {
			return fmt.Errorf("%d of %d pods are there", len(now), len(pods))
		}
		return nil
	})
}
