//! A request with several prompts as several requests.

use super::{Names, Prompt, Request};

impl Request<'_> {
    /// Number of prompts.
    pub fn prompts(&self) -> usize {
        match &self.prompt {
            Prompt::Ids(ids) => ids.len(),
            Prompt::Messages(_) => 1,
            Prompt::Texts(texts) => texts.len(),
        }
    }

    /// The request for each of the prompts by itself.
    pub fn each(&self) -> impl Iterator<Item = Self> + '_ {
        let mut bare = self.clone();
        bare.prompt = Prompt::Texts(Vec::new());
        (0..self.prompts()).map(move |number| {
            let mut one = bare.clone();
            one.prompt = match &self.prompt {
                Prompt::Ids(ids) => Prompt::Ids(vec![ids[number].clone()]),
                Prompt::Messages(_) => self.prompt.clone(),
                Prompt::Texts(texts) => Prompt::Texts(vec![texts[number].clone()]),
            };
            if let Some(wishes) = one.wishes.as_deref_mut() {
                wishes.is_list = false;
                wishes.names = match std::mem::take(&mut wishes.names) {
                    Names::Each(mut names) if number < names.len() => {
                        Names::One(names.swap_remove(number))
                    }
                    Names::One(name) => Names::One(format!("{name}_{number}").into()),
                    names => names,
                };
            }
            one
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Endpoint, Wishes};
    use super::*;

    #[test]
    fn each_prompt_has_a_name_of_its_own() {
        let named = |names| {
            let request = Request {
                prompt: Prompt::Texts(vec!["a".into(), "b".into()]),
                wishes: Some(Box::new(Wishes {
                    is_list: true,
                    names,
                    ..Wishes::default()
                })),
                ..Request::new(Endpoint::Generate)
            };
            let each = request.each().map(|one| {
                let wishes = one.wishes.expect("it had them");
                assert!(!wishes.is_list);
                (one.prompt, wishes.names)
            });
            each.collect::<Vec<_>>()
        };
        let text = |text: &'static str| Prompt::Texts(vec![text.into()]);
        let one = |name: &'static str| Names::One(name.into());
        let expected = [(text("a"), one("x_0")), (text("b"), one("x_1"))];
        assert_eq!(named(one("x")), expected);
        let each = Names::Each(vec!["x".into(), "y".into()]);
        assert_eq!(named(each), [(text("a"), one("x")), (text("b"), one("y"))]);
    }
}
