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

// addPortable adds the rules of the portable annotations: those of their own table, and what the cloud makes of each. What only
// code can judge is left to the controllers.
func (r *rules) addPortable(p registry.Provider) {
	cloud := p.Cloud()
	for _, row := range portable.Annotations.Rows() {
		if v, ok := validationOf(cloud, row); ok {
			r.Errors = append(r.Errors, v)
		}
		pairs := cloud.Pairs(row.Key)
		for _, one := range pairs {
			if one.Row.Adopting() {
				r.Adoption = append(r.Adoption, adoption(row.Key))
			}
		}
		switch {
		case portable.Shared(row.Key):
		case len(pairs) == 0 && portable.Essential(row.Key):
			r.Errors = append(r.Errors, validation{unjudged(row.Key), said(row.Key, portable.Refusal(cloud.Title))})
		case len(pairs) == 0:
			r.Warnings = append(r.Warnings, validation{unjudged(row.Key), said(row.Key, portable.Effectless(cloud.Title))})
		default:
			r.addPairs(cloud, row, pairs)
		}
	}
}

// addPairs adds what the rows of a cloud say of a portable annotation that they serve, each perhaps for Services of another kind.
func (r *rules) addPairs(cloud portable.Cloud, row schema.AnnotationRow, pairs []portable.Pair) {
	judged := unjudged(row.Key, wheres(pairs)...)
	legal, holding := []string{judged}, []string{}
	words, conditional := "", true
	for _, one := range slices.Backward(pairs) {
		right, message, ok := pairJudgement(cloud, row, one)
		if !ok {
			return // a part of it is for code to judge
		}
		condition := conditions(cloud, one)
		if condition == "" {
			conditional = false
			holding = append(holding, "true")
			legal, words = append(legal, right), message
			continue
		}
		holding = append(holding, condition)
		legal = append(legal, "("+condition+" && "+right+")")
		if words != "" {
			message = "(" + condition + ") ? (" + message + ") : " + words // CEL wants parentheses around a choice within a choice
		}
		words = message
	}
	if len(pairs) > 1 && !conditional {
		// All rows that always hold are set, so that each must take the value.
		legal = []string{judged, "(" + strings.Join(slices.Compact(legal[1:]), " && ") + ")"}
	}
	none := "!(" + strings.Join(holding, " || ") + ")"
	switch {
	case !conditional:
	case portable.Essential(row.Key):
		words = none + " ? " + said(row.Key, portable.Refusal(cloud.Title)) + needs(pairs[0]) + " : " + words
	default:
		legal = append(legal, none)
		r.Warnings = append(r.Warnings, validation{
			judged + " || " + strings.Join(holding, " || "), said(row.Key, portable.Effectless(cloud.Title)) + needs(pairs[0]),
		})
	}
	if joined := strings.Join(legal[1:], ""); joined != "true" {
		r.Errors = append(r.Errors, validation{strings.Join(legal, " || "), words})
	}
}

// wheres are the conditions of rows that serve a portable annotation.
func wheres(pairs []portable.Pair) []*schema.Where {
	var all []*schema.Where
	for _, one := range pairs {
		all = append(all, one.Row.Where, one.Serves.Where)
	}
	return all
}

// pairJudgement says when a row takes a portable value.
func pairJudgement(cloud portable.Cloud, row schema.AnnotationRow, one portable.Pair) (legal, message string, ok bool) {
	value, s := valueOf(row.Key), one.Serves
	switch {
	case s.Translate != nil:
		return "", "", false
	case s.Values != nil:
		var list []string
		for _, choice := range row.Choices {
			if _, served := s.Values[choice]; served {
				list = append(list, quoted(choice))
			}
		}
		return value + " in [" + strings.Join(list, ", ") + "]", said(row.Key, portable.ValuesWords(one, cloud.Title)), true
	case s.Unit != 0:
		legal, message = durationJudgement(row.Key, one)
		return legal, message, true
	}
	as := one.Row
	as.Key = row.Key
	as.Min, as.Max = s.Bounds(one.Row.Spec)
	if legal, message, ok = judgement(as); ok {
		return legal, message, true
	}
	if as.Check != nil || as.Kind == schema.KindIntList {
		return "", "", false
	}
	return "true", quoted(""), true
}

// durationJudgement bounds a duration, with the words of package schema.
func durationJudgement(key string, one portable.Pair) (legal, message string) {
	value, s := valueOf(key), one.Serves
	least, most := s.Bounds(one.Row.Spec)
	bound := func(v float64) string {
		return "duration('" + strconv.FormatFloat(v*s.Unit.Seconds(), 'f', -1, 64) + "s')"
	}
	is := value + ".matches(" + quoted(durations) + ")"
	within, whole := []string{}, "duration("+value+") == duration(string(duration("+value+").getSeconds()) + 's')"
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
	message = "!" + is + " ? " + said(key, `is not a duration; use a form such as "90s" or "5m"`) + " : !(" + inRange + ") ? " +
		said(key, "is out of range"+s.RangeHint(one.Row.Spec)) + " : " + said(key, "is not a whole number of "+s.UnitName()+s.RangeHint(one.Row.Spec))
	return "(" + is + " && " + inRange + " && " + whole + ")", message
}

// conditions holds for Services that a row is for; "" is all.
func conditions(cloud portable.Cloud, one portable.Pair) string {
	var all []string
	for _, w := range []*schema.Where{one.Row.Where, one.Serves.Where} {
		if w != nil {
			all = append(all, "("+condition(cloud, w)+")")
		}
	}
	return strings.Join(all, " && ")
}

// condition holds for Services that meet a condition by an annotation of their own, by one that is translated, or because the kind
// is chosen by a portable annotation.
func condition(cloud portable.Cloud, w *schema.Where) string {
	given := "variables.annotations[?" + quoted(w.Key) + "].orValue('')"
	texts := func(values []string) string {
		list := make([]string, len(values))
		for i, v := range values {
			list[i] = quoted(v)
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	if len(w.OneOf) == 0 {
		return "!(" + given + " in " + texts(w.NoneOf) + ")"
	}
	ways := []string{given + " in " + texts(w.OneOf)}
	for _, row := range portable.Annotations.Rows() {
		asked := "variables.annotations[?" + quoted(row.Key) + "].orValue('')"
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
				ways = append(ways, "("+given+" == '' && "+asked+" != '')")
			}
		}
	}
	return strings.Join(ways, " || ")
}

// needs is the expression of what is said about the first condition that does not hold.
func needs(one portable.Pair) string {
	text := quoted("")
	for _, w := range []*schema.Where{one.Row.Where, one.Serves.Where} {
		if w == nil {
			continue
		}
		given := "variables.annotations[?" + quoted(w.Key) + "].orValue('')"
		fails, words := given+" in ["+quotedAll(w.NoneOf)+"]", quoted(", or change "+w.Key+`, which is "`)+" + "+given+" + "+quoted(`"`)
		if len(w.OneOf) > 0 {
			fails, words = "!("+given+" in ["+quotedAll(w.OneOf)+"])", quoted(", or set "+w.Key+" to "+w.OneOf[0])
		}
		text = "(" + fails + " ? " + words + " : " + text + ")"
	}
	return " + " + text
}

func quotedAll(values []string) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = quoted(v)
	}
	return strings.Join(list, ", ")
}

// portableTables are the tables of the portable annotations over all clouds.
func portableTables(providers []registry.Provider) map[string]string {
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
			outcome = "served above all clouds"
		case portable.Essential(row.Key):
			outcome = "**refused**"
		}
		fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", code(row.Key), values(row.Spec), cell(row.Help), outcome)
		fmt.Fprintf(&matrix, "| %s |", code(strings.TrimPrefix(row.Key, portable.Prefix)))
		for _, p := range providers {
			fmt.Fprintf(&matrix, " %s |", servedBy(p.Cloud(), row))
		}
		matrix.WriteString("\n")
	}
	return map[string]string{"annotations": rows.String(), "clouds": matrix.String()}
}

// servedBy says how a cloud serves a portable annotation.
func servedBy(cloud portable.Cloud, row schema.AnnotationRow) string {
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

// kinds are the rows of a cloud, some of which are for one kind of load balancer alone.
type kinds []schema.AnnotationRow

// has reports whether a value of an annotation is a kind that rows are for; others leave the Service to another controller.
func (k kinds) has(key, value string) bool {
	return slices.ContainsFunc(k, func(r schema.AnnotationRow) bool {
		return r.Where != nil && r.Where.Key == key && slices.Contains(r.Where.OneOf, value)
	})
}

// wayOf says how one row serves a portable annotation, and what of it.
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
			if kinds := slices.DeleteFunc(slices.Clone(w.NoneOf), func(kind string) bool { return !cloud.has(w.Key, kind) }); len(kinds) > 0 {
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

// servesTable is the part of a provider's page about portable annotations.
func servesTable(p registry.Provider) string {
	var b strings.Builder
	b.WriteString("| portable annotation | here |\n| --- | --- |\n")
	cloud := p.Cloud()
	for _, row := range portable.Annotations.Rows() {
		fmt.Fprintf(&b, "| %s | %s |\n", code(row.Key), servedBy(cloud, row))
	}
	return b.String()
}
