// Tests of labels: ends of names remain, text stays within its box, hostile names stay harmless.

import { describe, expect, it } from "vitest";
import { fitLabel, labelForms, removeRustHash, removeTypeArguments, showName } from "./names";
import { SeededRandom } from "./testing/random";

const measure = (text: string) => Array.from(text).length;

describe("removeTypeArguments", () => {
  it.each([
    ["std::vec::Vec<T, A>::push", "std::vec::Vec::push"],
    ["core::iter::Iterator::fold::<u32, fn(u32) -> u32>", "core::iter::Iterator::fold"],
    ["<alloc::vec::Vec<T> as core::ops::Drop>::drop", "alloc::vec::Vec::drop"],
    ["a::<impl b::C for d::E<F>>::run", "a::run"],
    ["slices.SortFunc[go.shape.[]int,go.shape.int]", "slices.SortFunc"],
    ["bool operator<(A, B)", "bool operator<(A, B)"],
    ["std::operator<< <char>", "std::operator<< <char>"],
    ["java.lang.Foo.<init>", "java.lang.Foo.<init>"],
    ["<module>", "<module>"],
    ["<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"],
    ["main.(*Server).Serve", "main.(*Server).Serve"],
    ["(anonymous namespace)::f<int>", "(anonymous namespace)::f"],
    ["unbalanced<T", "unbalanced<T"],
    ["[unknown]", "[unknown]"],
  ])("%s_becomes_%s", (name, expected) => {
    expect(removeTypeArguments(name)).toBe(expected);
  });
});

describe("labelForms", () => {
  it("template_arguments_and_hashes_go_before_leading_parts", () => {
    expect(labelForms("shop::cart::Cart<T>::checkout::h0123456789abcdef")).toEqual([
      "shop::cart::Cart<T>::checkout::h0123456789abcdef",
      "shop::cart::Cart<T>::checkout",
      "shop::cart::Cart::checkout",
      "cart::Cart::checkout",
      "Cart::checkout",
      "checkout",
    ]);
  });

  it("go_names_lose_directories_then_packages", () => {
    expect(labelForms("github.com/acme/shop/cart.(*Cart).Add")).toEqual([
      "github.com/acme/shop/cart.(*Cart).Add",
      "acme/shop/cart.(*Cart).Add",
      "shop/cart.(*Cart).Add",
      "cart.(*Cart).Add",
      "(*Cart).Add",
      "Add",
    ]);
  });

  it.each([
    [
      "com.example.Main$$Lambda/0x00007f.run",
      ["example.Main$$Lambda/0x00007f.run", "Main$$Lambda/0x00007f.run", "0x00007f.run", "run"],
    ],
    ["java.base/java.util.List.add", ["java.util.List.add", "util.List.add", "List.add", "add"]],
    ["a.b.C(x/y).m", ["b.C(x/y).m", "C(x/y).m", "m"]],
    ["a.b.C<x/y>.m", ["a.b.C.m", "b.C.m", "C.m", "m"]],
    ["gopkg.in/yaml.v3.Decode", ["yaml.v3.Decode", "v3.Decode", "Decode"]],
    ["net/http.(*conn).serve", ["http.(*conn).serve", "(*conn).serve", "serve"]],
  ])("%s_has_parts_at_dots_outside_of_a_host", (name, forms) => {
    expect(labelForms(name)).toEqual([name, ...forms]);
  });

  it("frames_of_lines_keep_function_and_line", () => {
    expect(labelForms("shop/cart.(*Cart).Add /src/cart/cart.go:17")).toEqual([
      "shop/cart.(*Cart).Add /src/cart/cart.go:17",
      "shop/cart.(*Cart).Add cart.go:17",
      "cart.(*Cart).Add cart.go:17",
      "(*Cart).Add cart.go:17",
      "Add cart.go:17",
      "Add :17",
    ]);
  });

  it("frames_of_lines_without_a_function_name_have_the_placeholder", () => {
    expect(labelForms(" /src/main.go:17")).toEqual([
      "(no name) /src/main.go:17",
      "(no name) main.go:17",
      "(no name) :17",
    ]);
  });

  it("parameters_go_after_template_arguments", () => {
    expect(
      labelForms("db::Impl::Get(db::Options<int> const&, std::function<void (int)>) const").slice(1),
    ).toEqual([
      "db::Impl::Get(db::Options const&, std::function) const",
      "db::Impl::Get",
      "Impl::Get",
      "Get",
    ]);
    expect(labelForms("main.(*T)").at(-1)).toBe("(*T)");
    expect(labelForms("a::(anonymous namespace)").at(-1)).toBe("(anonymous namespace)");
  });

  it("hash_within_a_name_remains", () => {
    expect(removeRustHash("a::hashed::b")).toBe("a::hashed::b");
    expect(removeRustHash("a::h0123456789abcdef0::b")).toBe("a::h0123456789abcdef0::b");
    expect(removeRustHash("a::b::h0123456789abcdef")).toBe("a::b");
  });
});

describe("fitLabel", () => {
  it("label_keeps_the_end_of_the_name", () => {
    const forms = labelForms("github.com/acme/shop/cart.(*Cart).Add");
    expect(fitLabel(forms, 100, measure)).toBe("github.com/acme/shop/cart.(*Cart).Add");
    expect(fitLabel(forms, 20, measure)).toBe("cart.(*Cart).Add");
    expect(fitLabel(forms, 5, measure)).toBe("Add");
    expect(fitLabel(forms, 1, measure)).toBe("");
    expect(fitLabel(labelForms("checkout"), 6, measure)).toBe("…ckout");
  });

  it.each([
    ["ip_queue_xmit", 8, "…ue_xmit"],
    ["ip_queue_xmit", 7, "…xmit"],
    ["ip_queue_xmit", 12, "…queue_xmit"],
    ["literalStore", 9, "…Store"],
    ["entry_SYSCALL_64", 8, "…CALL_64"],
    ["reflectValue", 4, ""],
    ["Write", 4, ""],
    ["Write", 5, "Write"],
    ["Get", 3, "Get"],
    ["abcdefgh", 6, "…defgh"],
    ["abcdefgh", 5, ""],
  ])("%s_in_%i_characters_is_labeled_%j", (name, width, expected) => {
    expect(fitLabel(labelForms(name), width, measure)).toBe(expected);
  });

  it("label_of_random_names_fits_and_ends_as_the_name", () => {
    const random = new SeededRandom(5);
    for (let round = 0; round < 3000; round++) {
      const length = random.below(60);
      const name = Array.from({ length }, () => random.pick([..."ab<>[]():./:: é\u202e日"])).join("");
      const width = random.below(40);
      const forms = labelForms(name);
      const label = fitLabel(forms, width, measure);
      expect(measure(label)).toBeLessThanOrEqual(width);
      expect(forms.at(-1)?.endsWith(label.replace(/^…/, "")) || forms.includes(label)).toBe(true);
    }
  });

  it("name_of_10_kB_is_labeled_quickly", () => {
    const started = performance.now();
    const forms = labelForms(`${"a::<".repeat(2500)}end`);
    expect(fitLabel(forms, 12, measure)).toBe("…a::<a::<end");
    labelForms("(".repeat(10_000));
    labelForms(`${"<".repeat(5000)}${">".repeat(5000)}`);
    expect(performance.now() - started).toBeLessThan(500);
  });
});

describe("showName", () => {
  it.each([
    ["", "(no name)"],
    [" /src/main.go:17", "(no name) /src/main.go:17"],
    [" :17", "(no name) :17"],
    [" a /src/main.go:17", " a /src/main.go:17"],
    ["<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"],
    ["a\u202eb", "a<202E>b"],
    ["a\u0000\n\tb\u007f", "a␀␊␉b␡"],
    ["a\u200bb\ufeff", "a<200B>b<FEFF>"],
    ["a\ud800b", "a\ufffdb"],
    ["👍", "👍"],
    ["e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301"],
  ])("%j_is_shown_as_%j", (name, expected) => {
    expect(showName(name)).toBe(expected);
  });
});
