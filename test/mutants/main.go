// Command mutants seeds faults into the sources, one at a time, and sees that the test which is named for each of them fails. The
// checkout stays as it is: go build reads the changed file through an overlay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

const usage = `usage: mutants [-list] [area or name ...]

Seeds each fault that test/mutants lists, or those of the areas and names that are given, and runs the test that has to catch it.

`

func main() {
	onlyList := flag.Bool("list", false, "print the faults, and run nothing")
	atOnce := flag.Int("at-once", 2, "number of faults that are tried at a time")
	onlyNamed := flag.Bool("named", false, "try the named tests alone, and not the package where they pass")
	verbose := flag.Bool("v", false, "print the end of each failure")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(flag.Args(), *onlyList, options{*verbose, *onlyNamed, max(*atOnce, 1)}); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// options say how mutants are tried.
type options struct {
	verbose, onlyNamed bool
	atOnce             int
}

func run(wanted []string, onlyList bool, o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all, err := load()
	if err != nil {
		return err
	}
	chosen, err := choose(all, wanted)
	if err != nil {
		return err
	}
	if onlyList {
		for _, m := range chosen {
			fmt.Printf("%-12s %-44s %s %s %s\n", m.area, m.Name, m.Package, m.Run, m.Reason)
		}
		return nil
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	if err := errors.Join(problems(root, chosen)...); err != nil {
		return err
	}
	return tryAll(ctx, root, chosen, o)
}

// choose returns the mutants of the areas and names that are given, or all.
func choose(all []mutant, wanted []string) ([]mutant, error) {
	if len(wanted) == 0 {
		return all, nil
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool {
		return !slices.Contains(wanted, m.area) && !slices.Contains(wanted, m.Name)
	})
	for _, w := range wanted {
		if !slices.ContainsFunc(chosen, func(m mutant) bool { return m.area == w || m.Name == w }) {
			return nil, fmt.Errorf("there is no area and no fault named %q; -list prints them", w)
		}
	}
	return chosen, nil
}

// tryAll tries mutants, some at a time, and prints what came of each.
func tryAll(ctx context.Context, root string, mutants []mutant, o options) error {
	work := make(chan mutant)
	var mu sync.Mutex
	counts := map[outcome]int{}
	var group sync.WaitGroup
	for range o.atOnce {
		group.Go(func() {
			for m := range work {
				started := time.Now()
				r := try(ctx, root, m, o.onlyNamed)
				mu.Lock()
				counts[r.outcome]++
				fmt.Printf("%-9s %-12s %-44s %4.0f s  %s %s\n", r.outcome, m.area, m.Name, time.Since(started).Seconds(), m.Package, m.Run)
				if r.outcome != caught || o.verbose {
					fmt.Println(r.detail)
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		select {
		case work <- m:
		case <-ctx.Done():
		}
	}
	close(work)
	group.Wait()
	fmt.Printf("%d faults: %d caught, %d survived, %d failed for another reason, %d broken\n",
		len(mutants), counts[caught], counts[survived], counts[other], counts[broken])
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if counts[caught] != len(mutants) {
		return errors.New("a fault that no test catches can come back: write the test that does, or say in the list which one it is")
	}
	return nil
}
