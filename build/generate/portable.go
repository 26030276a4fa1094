package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// addPortable adds the rules of the portable annotations: those of their own table, and the cloud's. Rules in code are left to the
// controllers. A value is refused only once.
func (r *rules) addPortable(p registry.Provider) {
	cloud := p.Cloud()
	for _, row := range portable.Annotations.Rows() {
		pairs := cloud.Pairs(row.Key)
		passing := unchangedExemption(row.Key, conditionsOf(pairs)...) + exceedsLength(row)
		if v, ok := validationOf(cloud, row); ok {
			r.Errors = append(r.Errors, v)
			legal, _, _ := judgement(row)
			passing += " || !(" + legal + ")"
		}
		for _, one := range pairs {
			if one.Row.Adopting() {
				r.Adoption = append(r.Adoption, adoption(row.Key))
			}
		}
		switch {
		case portable.Shared(row.Key):
		case len(pairs) == 0 && portable.Essential(row.Key):
			r.Errors = append(r.Errors, validation{passing + " || false", celMessage(row.Key, portable.Refusal(cloud.Title))})
		case len(pairs) == 0:
			r.Warnings = append(r.Warnings, validation{passing + " || false", celMessage(row.Key, portable.Effectless(cloud.Title))})
		default:
			if row.Key == portable.TLSPorts {
				passing = r.addTLSPorts(cloud, passing)
			}
			r.addPairs(cloud, row, pairs, passing)
		}
	}
}

// addTLSPorts adds the rules for TLS ports, common to all clouds that support them, and returns the condition under which the cloud's own
// do not apply.
func (r *rules) addTLSPorts(cloud portable.Cloud, passing string) string {
	value := valueOf(portable.TLSPorts)
	unknown := value + ".split(',').map(i, i.trim()).filter(i, i != '' && !object.spec.ports.exists(p, " + namesPort("i") + "))"
	var certified []string
	for _, one := range append(cloud.Pairs(portable.Certificate), portable.Pair{Row: schema.AnnotationRow{Key: portable.Certificate}}) {
		for _, key := range append([]string{one.Row.Key}, one.Serves.Rivals...) {
			if !strings.Contains(key, schema.Numbered) && !slices.Contains(certified, lookup(key)+" != ''") {
				certified = append(certified, lookup(key)+" != ''")
			}
		}
	}
	known, certificate := "size("+unknown+") == 0", "("+strings.Join(certified, " || ")+")"
	message := "!(" + known + ") ? " + celMessage(portable.TLSPorts, "holds ") + " + strings.quote(" + unknown + "[0]) + " +
		quote(", which is no TCP port of the Service") + " : " + celMessage(portable.TLSPorts, "needs "+portable.Certificate)
	r.Errors = append(r.Errors, validation{passing + " || (" + known + " && " + certificate + ")", message})
	return passing + " || !(" + known + ") || !" + certificate
}

// namesPort holds if the variable contains the number or name of TCP port p.
func namesPort(text string) string {
	return "p.?protocol.orValue('TCP') == 'TCP' && (string(p.port) == " + text + " || (p.?name.orValue('') == " + text + " && " + text + " != ''))"
}

// addPairs adds the rules of a cloud's rows for a portable annotation. Each row may be for another kind of load balancer.
func (r *rules) addPairs(cloud portable.Cloud, row schema.AnnotationRow, pairs []portable.Pair, passing string) {
	var legal, holding []string
	words, conditional := "", true
	for _, one := range slices.Backward(pairs) {
		right, message := pairJudgement(cloud, row, one)
		condition := conditions(cloud, one)
		if w := one.Choice(); w != nil { // for unsupported values the row's own message is better
			condition = "(" + condition + " || " + lookup(w.Key) + " == '')"
		}
		r.addEffectless(cloud, row.Key, one, passing, condition)
		if condition == "" {
			conditional = false
			holding = append(holding, "true")
			legal = append(legal, right)
			if words != "" {
				message = "!(" + right + ") ? (" + message + ") : " + words
			}
			words = message
			continue
		}
		holding = append(holding, condition)
		legal = append(legal, "("+condition+" && "+right+")")
		if words != "" {
			message = "(" + condition + ") ? (" + message + ") : " + words // CEL requires parentheses around nested conditionals
		}
		words = message
	}
	if len(pairs) > 1 && !conditional {
		// All unconditional rows are set, so each must accept the value.
		legal = []string{"(" + strings.Join(slices.Compact(legal), " && ") + ")"}
	}
	none := "!(" + strings.Join(holding, " || ") + ")"
	switch {
	case !conditional:
	case portable.Essential(row.Key):
		words = none + " ? " + celMessage(row.Key, portable.Refusal(cloud.Title)) + unmetCondition(cloud, pairs[0]) + " : " + words
	default:
		legal = append(legal, none)
		r.Warnings = append(r.Warnings, validation{
			passing + " || " + strings.Join(holding, " || "), celMessage(row.Key, portable.Effectless(cloud.Title)) + unmetCondition(cloud, pairs[0]),
		})
	}
	if joined := strings.Join(legal, " || "); joined != "true" {
		r.Errors = append(r.Errors, validation{passing + " || " + joined, words})
	}
}

// conditionsOf are the conditions of rows that serve a portable annotation, and those of their rules.
func conditionsOf(pairs []portable.Pair) []*schema.Where {
	var all []*schema.Where
	for _, one := range pairs {
		all = append(all, one.Row.Where, one.Serves.Where)
		for _, rule := range one.Serves.Rules {
			for _, t := range slices.Concat(rule.When, rule.Needs) {
				if t.Key != "" {
					all = append(all, &schema.Where{Key: t.Key})
				}
			}
		}
	}
	return all
}

// addEffectless adds warnings for values without effect.
func (r *rules) addEffectless(cloud portable.Cloud, key string, one portable.Pair, passing, condition string) {
	if condition != "" {
		passing += " || !(" + condition + ")"
	}
	unless := []string{passing} // an earlier broken rule is reported instead
	for _, rule := range one.Serves.Rules {
		unless = append(unless, ruleViolation(rule, valueOf(key)))
		if !rule.NoEffect {
			continue
		}
		r.Warnings = append(r.Warnings, validation{
			strings.Join(unless[:len(unless)-1], " || ") + " || !" + ruleViolation(rule, valueOf(key)),
			celMessage(key, "has no effect on "+cloud.Title+": "+rule.Words),
		})
	}
}

// pairJudgement returns the condition for a portable value from its rules and the row's. Rules in code are left to the controllers.
func pairJudgement(cloud portable.Cloud, row schema.AnnotationRow, one portable.Pair) (legal, message string) {
	value, s := valueOf(row.Key), one.Serves
	legal, message = "true", quote("")
	switch {
	case s.Translate != nil:
	case s.Values != nil:
		var list []string
		for _, choice := range row.Choices {
			if _, served := s.Values[choice]; served {
				list = append(list, quote(choice))
			}
		}
		legal, message = value+" in ["+strings.Join(list, ", ")+"]", celMessage(row.Key, portable.ValuesWords(one, cloud.Title))
	case s.Unit != 0:
		legal, message = durationJudgement(row.Key, one)
	default:
		as := one.Row
		as.Key = row.Key
		as.Min, as.Max = s.Bounds(one.Row.Spec)
		if l, m, ok := judgement(as); ok {
			legal, message = l, m
		}
	}
	return applyRules(s.Rules, value, row.Key, legal, message)
}

// applyRules puts rules before another condition: the first broken rule determines the message, and one about values without effect ends
// the check.
func applyRules(rules []schema.Rule, value, key, legal, message string) (string, string) {
	for _, rule := range slices.Backward(rules) {
		if rule.NoEffect {
			legal = "(" + ruleViolation(rule, value) + " || " + legal + ")"
			continue
		}
		told := celMessage(key, rule.Words)
		if legal == "true" {
			legal, message = "!"+ruleViolation(rule, value), told
			continue
		}
		legal, message = "(!"+ruleViolation(rule, value)+" && "+legal+")", ruleViolation(rule, value)+" ? "+told+" : "+message
	}
	return legal, message
}

// ruleViolation holds if a value breaks a rule.
func ruleViolation(rule schema.Rule, value string) string {
	var all []string
	for _, t := range rule.When {
		all = append(all, term(t, value))
	}
	needs := make([]string, len(rule.Needs))
	for i, t := range rule.Needs {
		needs[i] = term(t, value)
	}
	return "(" + strings.Join(append(all, "!("+strings.Join(needs, " || ")+")"), " && ") + ")"
}

// term is the CEL expression of a condition on one value.
func term(t schema.Term, value string) string {
	if t.Key != "" {
		value = lookup(t.Key)
	}
	if t.EveryPort {
		return "object.spec.ports.all(p, p.?protocol.orValue('TCP') != 'TCP' || " + value + ".split(',').map(i, i.trim()).exists(i, " + namesPort("i") + "))"
	}
	var all []string
	if t.Matches != "" {
		all = append(all, value+".matches("+quote(t.Matches)+")")
	}
	if t.Lacks != "" {
		all = append(all, "!"+value+".matches("+quote(t.Lacks)+")")
	}
	return "(" + strings.Join(all, " && ") + ")"
}

// durationJudgement bounds a duration, with the message of package schema.
func durationJudgement(key string, one portable.Pair) (legal, message string) {
	value, s := valueOf(key), one.Serves
	least, most := s.Bounds(one.Row.Spec)
	bound := func(v float64) string {
		return "duration('" + strconv.FormatFloat(v*s.Unit.Seconds(), 'f', -1, 64) + "s')"
	}
	is := value + ".matches(" + quote(durations) + ")"
	within, whole := []string{}, "duration("+value+") == duration(string(duration("+value+").getSeconds()) + 's')"
	if s.Unit == time.Minute {
		whole = "duration(" + value + ") == duration(string(duration(" + value + ").getMinutes()) + 'm')"
	}
	if s.Unit == time.Millisecond {
		whole = "duration(" + value + ") == duration(string(duration(" + value + ").getMilliseconds()) + 'ms')"
	}
	if least != nil {
		within = append(within, "duration("+value+") >= "+bound(*least))
	}
	if most != nil {
		within = append(within, "duration("+value+") <= "+bound(*most))
	}
	inRange := strings.Join(append(within, "true"), " && ")
	message = "!" + is + " ? " + celMessage(key, `is not a duration; use a form such as "90s" or "5m"`) + " : !(" + inRange + ") ? " +
		celMessage(key, "is out of range"+s.RangeHint(one.Row.Spec)) + " : " + celMessage(key, "is not a whole number of "+s.UnitName()+s.RangeHint(one.Row.Spec))
	return "(" + is + " && " + inRange + " && " + whole + ")", message
}

// conditions holds for the Services of a row; "" means all.
func conditions(cloud portable.Cloud, one portable.Pair) string {
	var all []string
	for _, w := range []*schema.Where{one.Row.Where, one.Serves.Where} {
		if w != nil {
			all = append(all, "("+condition(cloud, w)+")")
		}
	}
	return strings.Join(all, " && ")
}

// condition holds for Services that meet a condition by their own annotation, by a translated one, or by the kind that a portable
// annotation selects.
func condition(cloud portable.Cloud, w *schema.Where) string {
	given := lookup(w.Key)
	texts := func(values []string) string {
		list := make([]string, len(values))
		for i, v := range values {
			list[i] = quote(v)
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	if len(w.OneOf) == 0 {
		return "!(" + given + " in " + texts(w.NoneOf) + ")"
	}
	ways := []string{given + " in " + texts(w.OneOf)}
	for _, row := range portable.Annotations.Rows() {
		asked := lookup(row.Key)
		for _, one := range cloud.Pairs(row.Key) {
			var values []string
			for _, choice := range row.Choices {
				if own, served := one.Serves.Values[choice]; served && one.Row.Key == w.Key && slices.Contains(w.OneOf, own) {
					values = append(values, choice)
				}
			}
			if len(values) > 0 {
				ways = append(ways, "("+given+" == '' && "+asked+" in "+texts(values)+")")
			}
			if chosen := one.Choice(); chosen != nil && chosen.Key == w.Key {
				ways = append(ways, "("+given+" == '' && "+selectsRow(cloud, row, one, asked)+")")
			}
		}
	}
	return strings.Join(ways, " || ")
}

// selectsRow holds if a portable value selects the row's kind for a Service without one: only this row accepts it.
func selectsRow(cloud portable.Cloud, row schema.AnnotationRow, one portable.Pair, asked string) string {
	if one.Serves.Values != nil {
		var list []string
		for _, choice := range row.Choices {
			_, served := one.Serves.Values[choice]
			always := func(p portable.Pair) bool {
				_, too := p.Serves.Values[choice]
				return too && p.Choice() == nil
			}
			if served && !slices.ContainsFunc(cloud.Pairs(row.Key), always) {
				list = append(list, quote(choice))
			}
		}
		return asked + " in [" + strings.Join(list, ", ") + "]"
	}
	all := []string{asked + " != ''"}
	for _, rule := range slices.Concat(row.Rules, one.Serves.Rules) {
		all = append(all, "!"+ruleViolation(rule, asked))
	}
	return strings.Join(all, " && ")
}

// unmetCondition is the message for the first unmet condition.
func unmetCondition(cloud portable.Cloud, one portable.Pair) string {
	text := quote("")
	for _, w := range []*schema.Where{one.Row.Where, one.Serves.Where} {
		if w == nil {
			continue
		}
		given := lookup(w.Key)
		words := quote(", or change "+w.Key+", which is ") + " + strings.quote(" + given + ")"
		if len(w.OneOf) > 0 {
			words = quote(", or set " + w.Key + " to " + w.OneOf[0])
		}
		fails := "!(" + condition(cloud, w) + ")"
		text = "(" + fails + " ? " + words + " : " + text + ")"
	}
	return " + " + text
}

func portableTables(providers []registry.Provider) map[string]string {
	providers = slices.DeleteFunc(slices.Clone(providers), func(p registry.Provider) bool {
		return p.Features.LoadBalancers == registry.CloudHasNone
	})
	var rows, matrix strings.Builder
	rows.WriteString("| annotation | value | meaning | where the cloud cannot |\n| --- | --- | --- | --- |\n")
	matrix.WriteString("| annotation |")
	for _, p := range providers {
		fmt.Fprintf(&matrix, " [%s](providers/%s.md) |", p.Title, p.Name)
	}
	matrix.WriteString("\n| --- |" + strings.Repeat(" --- |", len(providers)) + "\n")
	for _, row := range portable.Annotations.Rows() {
		outcome := "no effect"
		switch {
		case portable.Shared(row.Key):
			outcome = "served on every cloud"
		case portable.Essential(row.Key):
			outcome = "**refused**"
		}
		fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", code(row.Key), values(row.Spec), cell(row.Help), outcome)
		fmt.Fprintf(&matrix, "| %s |", code(strings.TrimPrefix(row.Key, portable.Prefix)))
		for _, p := range providers {
			fmt.Fprintf(&matrix, " %s |", supportCell(p.Cloud(), row))
		}
		matrix.WriteString("\n")
	}
	return map[string]string{"annotations": rows.String(), "clouds": matrix.String()}
}

func supportCell(cloud portable.Cloud, row schema.AnnotationRow) string {
	pairs := cloud.Pairs(row.Key)
	switch {
	case len(pairs) == 0 && portable.Shared(row.Key):
		return "served"
	case len(pairs) == 0 && portable.Essential(row.Key):
		return "**refused**"
	case len(pairs) == 0:
		return "no effect"
	}
	ways := make([]string, 0, len(pairs))
	for _, one := range pairs {
		ways = append(ways, wayOf(kinds(cloud.Rows), row, one))
	}
	slices.Sort(ways)
	return strings.Join(slices.Compact(ways), " or ")
}

// kinds are a cloud's rows, some of which apply to one kind of load balancer only.
type kinds []schema.AnnotationRow

// includes reports whether a value is a kind with rows; other values leave the Service to another controller.
func (k kinds) includes(key, value string) bool {
	return slices.ContainsFunc(k, func(r schema.AnnotationRow) bool {
		return r.Where != nil && r.Where.Key == key && slices.Contains(r.Where.OneOf, value)
	})
}

// wayOf describes how one row serves a portable annotation, with its limits.
func wayOf(cloud kinds, row schema.AnnotationRow, one portable.Pair) string {
	var limits []string
	if s := one.Serves; s.Values != nil && len(s.Values) < len(row.Choices) {
		var served []string
		for _, choice := range row.Choices {
			if _, ok := s.Values[choice]; ok {
				served = append(served, code(choice))
			}
		}
		limits = append(limits, strings.Join(served, ", "))
	}
	hint := strings.TrimPrefix(one.Serves.RangeHint(one.Row.Spec), "; use ")
	if hint != "" && one.Serves.Translate == nil && one.Row.ID == nil {
		limits = append(limits, hint)
	}
	for _, w := range []*schema.Where{one.Row.Where, one.Serves.Where} {
		switch {
		case w == nil:
		case len(w.OneOf) > 0:
			limits = append(limits, "where "+code(w.Key)+" is "+code(w.OneOf[0]))
		default:
			if kinds := slices.DeleteFunc(slices.Clone(w.NoneOf), func(kind string) bool { return !cloud.includes(w.Key, kind) }); len(kinds) > 0 {
				limits = append(limits, "where "+code(w.Key)+" is not "+code(kinds[0]))
			}
		}
	}
	if one.Serves.Only != "" {
		limits = append(limits, cell(one.Serves.Only))
	}
	way := code(one.Row.Key)
	limits = slices.Compact(limits)
	if len(limits) > 0 {
		way += " (" + strings.Join(limits, "; ") + ")"
	}
	return way
}

// noLoadBalancers replaces the section about annotations on some pages.
const noLoadBalancers = "The cloud has no load balancers, so that annotations of Services have no effect.\n"

// servesTable is the section about portable annotations on a provider's page.
func servesTable(p registry.Provider) string {
	if p.Features.LoadBalancers == registry.CloudHasNone {
		return noLoadBalancers
	}
	var b strings.Builder
	b.WriteString("| portable annotation | here |\n| --- | --- |\n")
	cloud := p.Cloud()
	for _, row := range portable.Annotations.Rows() {
		fmt.Fprintf(&b, "| %s | %s |\n", code(row.Key), supportCell(cloud, row))
	}
	return b.String()
}
