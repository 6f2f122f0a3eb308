// Before anything is painted: the theme that was chosen here.
{
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  document.documentElement.classList.add("scripted");
}
