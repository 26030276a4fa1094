package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// minCleanUp is how long cleaning up waits for anything at least: after failures the program pauses before it tries again.
const minCleanUp = 5 * time.Minute

// cleanUp removes what the run made, and notes what is left. A second interruption ends the program.
func (s *suite) cleanUp(ctx context.Context) {
	fmt.Fprintln(s.w, "removing what the run made; a second interruption ends this at once")
	s.step, s.Patience = "", max(s.Patience, minCleanUp)
	if err := s.remove(ctx, s.space); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			s.report.Left = append(s.report.Left, line)
		}
		s.report.Left = append(s.report.Left, "run this with -clean-up once the cause is gone")
	}
}

// remove takes the marks of a run from the Nodes, deletes its Services, waits until the program has let them go, and deletes the rest.
func (s *suite) remove(ctx context.Context, space string) error {
	problems := []error{s.restoreNodes(ctx, space), s.removeServices(ctx, space)}
	background := metav1.DeletePropagationBackground
	problems = append(problems, checkGone("namespace "+space,
		s.kube.CoreV1().Namespaces().Delete(ctx, space, metav1.DeleteOptions{PropagationPolicy: &background})))
	if problems[len(problems)-1] == nil {
		problems = append(problems, s.eventually(ctx, "namespace "+space+" to be gone", func(ctx context.Context) error {
			n, err := s.kube.CoreV1().Namespaces().Get(ctx, space, metav1.GetOptions{})
			if err != nil {
				return checkGone("namespace "+space, err)
			}
			var words []string
			for _, c := range n.Status.Conditions {
				if c.Status == v1.ConditionTrue {
					words = append(words, c.Message)
				}
			}
			return fmt.Errorf("it is %s: %s", n.Status.Phase, strings.Join(words, "; "))
		}))
	}
	return errors.Join(append(problems,
		checkGone("ClusterRoleBinding "+space, s.kube.RbacV1().ClusterRoleBindings().Delete(ctx, space, metav1.DeleteOptions{})),
		checkGone("ClusterRole "+space, s.kube.RbacV1().ClusterRoles().Delete(ctx, space, metav1.DeleteOptions{})),
	)...)
}

// checkGone is nil where nothing of the name is there.
func checkGone(what string, err error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// removeServices deletes the Services of a run, and waits until their load balancers are gone as well: until then the program keeps a
// finalizer on them.
func (s *suite) removeServices(ctx context.Context, space string) error {
	services := s.kube.CoreV1().Services(space)
	return s.eventually(ctx, "the Services of "+space+" to be gone", func(ctx context.Context) error {
		list, err := services.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing Services: %w", err)
		}
		var names []string
		for _, one := range list.Items {
			names = append(names, one.Name)
			if one.DeletionTimestamp != nil {
				continue
			}
			if err := checkGone("Service "+one.Name, services.Delete(ctx, one.Name, metav1.DeleteOptions{})); err != nil {
				return err
			}
		}
		if len(names) > 0 {
			return errors.New("still there: " + strings.Join(names, ", "))
		}
		return nil
	})
}

// exclude gives a Node the label that keeps load balancers away from it, and the mark by which a later run finds it.
func (s *suite) exclude(ctx context.Context, node string) error {
	return s.patchNode(ctx, node, map[string]any{v1.LabelNodeExcludeBalancers: ""}, map[string]any{mark: s.space})
}

func (s *suite) patchNode(ctx context.Context, node string, labels, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	if err == nil {
		_, err = s.kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("labelling node %s: %w", node, err)
	}
	return nil
}

// restoreNodes takes the label off again.
func (s *suite) restoreNodes(ctx context.Context, space string) error {
	list, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: v1.LabelNodeExcludeBalancers})
	if err != nil {
		return fmt.Errorf("looking for nodes with label %s: %w", v1.LabelNodeExcludeBalancers, err)
	}
	var problems []error
	for _, n := range list.Items {
		if n.Annotations[mark] == space {
			err := s.patchNode(ctx, n.Name, map[string]any{v1.LabelNodeExcludeBalancers: nil}, map[string]any{mark: nil})
			problems = append(problems, checkGone("node "+n.Name, err))
		}
	}
	return errors.Join(problems...)
}

// removeLeftovers removes what runs left that were ended before they could do so themselves.
func (s *suite) removeLeftovers(ctx context.Context) error {
	spaces := map[string]bool{}
	marked := metav1.ListOptions{LabelSelector: mark}
	namespaces, err := s.kube.CoreV1().Namespaces().List(ctx, marked)
	if err != nil {
		return fmt.Errorf("looking for namespaces of runs: %w", err)
	}
	for _, n := range namespaces.Items {
		spaces[n.Name] = true
	}
	roles, err := s.kube.RbacV1().ClusterRoles().List(ctx, marked)
	if err != nil {
		return fmt.Errorf("looking for roles of runs: %w", err)
	}
	for _, r := range roles.Items {
		spaces[r.Name] = true
	}
	nodes, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: v1.LabelNodeExcludeBalancers})
	if err != nil {
		return fmt.Errorf("looking for nodes that runs labelled: %w", err)
	}
	for _, n := range nodes.Items {
		if run := n.Annotations[mark]; run != "" {
			spaces[run] = true
		}
	}
	var problems []error
	for space := range spaces {
		fmt.Fprintln(s.w, "removing", space)
		problems = append(problems, s.remove(ctx, space))
	}
	return errors.Join(problems...)
}
